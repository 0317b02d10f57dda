// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// overSPDY makes kubectl use SPDY, which was its default before WebSockets.
var overSPDY = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}

// TestConnections runs kubectl with a user's token against the cluster and through the
// replica, and compares the output of commands that need a connection to a node: logs, exec,
// attach, cp, port-forward and debug, over WebSockets and over SPDY, and proxy.
func TestConnections(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, strings.Repeat("x", 1<<20))
	}))
	t.Cleanup(page.Close)
	certificate := newCertificate(t, "jane")
	c := startStreaming(t, &kubetest.Options{
		Name: "one", Users: []kubetest.User{{Name: "reader"}},
		APIServerArgs: []string{"--client-ca-file=" + certificate.CAFile},
		Kubelet:       &kubetest.Kubelet{ForwardTo: page.Listener.Addr().(*net.TCPAddr).Port},
	}, "--pprof", "127.0.0.1:0")
	c.createPods(t, "web", "page", refuses+"403", refuses+"500")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for user, resource := range map[string]string{"reader": "pods", "jane": "*"} {
		if err := c.cluster.Grant(ctx, user, "default", rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{resource},
			Verbs:     []string{"get", "list", "create", "patch"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := c.cluster.AppendLog(fmt.Sprintf("line %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	vanishing := kubetest.Vanish(c.dialCommand(t))
	t.Run("refusals", func(t *testing.T) { c.checkRefusals(t, certificate) })
	t.Run("proxy", c.compareProxied)
	for _, protocol := range []struct {
		name string
		env  []string
	}{{"websocket", nil}, {"spdy", overSPDY}} {
		t.Run(protocol.name, func(t *testing.T) {
			server, copy := c.terminalOf(t, c.direct, protocol.env...), c.terminalOf(t, c.through, protocol.env...)
			t.Run("commands", func(t *testing.T) { c.compareCommands(t, server, copy) })
			t.Run("exec -it", func(t *testing.T) { c.compareTerminals(t, server, copy) })
			t.Run("logs -f", func(t *testing.T) { c.compareFollowed(t, server, copy, "logs", "-f", "web") })
			t.Run("attach", func(t *testing.T) { c.compareFollowed(t, server, copy, "attach", "web") })
			t.Run("port-forward", func(t *testing.T) { c.compareForwarded(t, server, copy) })
			t.Run("cp", func(t *testing.T) { c.compareCopied(t, server, copy) })
			t.Run("debug", func(t *testing.T) { c.compareDebugged(t, server, copy, protocol.name) })
		})
	}
	// The probes of TCP begin after 15 s. The tests above take about as long.
	t.Run("a client that has vanished", func(t *testing.T) {
		vanished(t, vanishing)
		expect.Eventually(t, 20*time.Second, c.passesNothing)
	})
}

// connectionCommands end by themselves.
var connectionCommands = []struct {
	line, stdin string
	// code is the exit code.
	code int
}{
	{line: "logs web"},
	{line: "logs web -c side --tail=1"},
	{line: "logs web --all-containers --prefix --timestamps"},
	{line: "logs -l app=web --limit-bytes=10"},
	{line: "logs web -c nope", code: 1},
	{line: "logs web --previous", code: 1},
	{line: "logs nope", code: 1},
	{line: "exec web -- sh -c 'echo out; echo err >&2; exit 3'", code: 3},
	{line: "exec web -c side -- echo side"},
	{line: "exec -i web -c main -- cat", stdin: "hello\nworld"},
	{line: "exec -i web -c main -- wc -c", stdin: strings.Repeat("0123456789", 300_000)},
	{line: "exec web -c main -- sh -c 'yes 0123456789 | head -c 3000000'"},
	// The command ends without reading its input.
	{
		line:  "exec -i web -c main -- sh -c 'yes 0123456789 | head -c 3000; exit 7'",
		stdin: strings.Repeat("0123456789", 300_000),
		code:  7,
	},
	{line: "exec web -c main -- no-such-command", code: 1},
	{line: "exec web -c nope -- true", code: 1},
	{line: "exec nope -- true", code: 1},
	{line: "attach web -c nope", code: 1},
	{line: "port-forward nope 0:80", code: 1},
	{line: "port-forward pod/web 0:none", code: 1},
	// The node refuses them.
	{line: "exec refuses-403 -c main -- true", code: 1},
	{line: "exec refuses-500 -c main -- true", code: 1},
	{line: "attach refuses-500 -c main", code: 1},
	{line: "port-forward refuses-403 0:80", code: 1},
	{line: "logs refuses-403 -c main", code: 1},
	{line: "logs refuses-500 -c main", code: 1},
}

// compareCommands compares the output of commands that end by themselves.
func (c *streaming) compareCommands(t *testing.T, server, copy *userTerminal) {
	for _, command := range connectionCommands {
		if first, _, _ := strings.Cut(command.line, " "); len(copy.env) > 0 && first == "logs" {
			continue // it is the same in both protocols
		}
		args := words(command.line)
		a, b := server.input(t.Context(), command.stdin, args...), copy.input(t.Context(), command.stdin, args...)
		if a.code != command.code {
			t.Errorf("kubectl %s: exit code %d, want %d: %s", command.line, a.code, command.code, brief(a.stderr))
		}
		if strings.Contains(command.line, "--all-containers") {
			a.stdout, b.stdout = sortedLines(a.stdout), sortedLines(b.stdout)
		}
		// kubectl reports that it could not send all input, if it has not exited before.
		a.stderr, b.stderr = unsentInput.ReplaceAllString(a.stderr, ""), unsentInput.ReplaceAllString(b.stderr, "")
		if unlike := differ(a, b); unlike != "" {
			t.Errorf("kubectl %s\n%s", command.line, unlike)
		}
	}
}

// sortedLines returns a text with its lines sorted.
func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// unsentInput matches the line that kubectl logs if a command has ended before its input.
var unsentInput = regexp.MustCompile(`(?m)^E.*"Copying stdin failed".*\n`)

// compareTerminals runs a command at a terminal of this machine and types a line.
func (c *streaming) compareTerminals(t *testing.T, server, copy *userTerminal) {
	for name, k := range map[string]*userTerminal{"server": server, "replica": copy} {
		person, program, err := openPty(33, 77)
		if err != nil {
			t.Skipf("no terminal: %v", err)
		}
		defer person.Close()
		defer program.Close()
		var screen expect.Output
		var showing sync.WaitGroup
		showing.Go(func() { _, _ = io.Copy(&screen, person) })
		shows := func(text string) {
			t.Helper()
			expect.Eventually(t, patience, func() error {
				if !strings.Contains(screen.String(), text) {
					return fmt.Errorf("%s: the screen shows %q, want %q", name, screen.String(), text)
				}
				return nil
			})
		}
		// The size of the terminal arrives some time after the command has started.
		s := k.beginAt(t, program, "exec", "-it", "web", "-c", "main", "--", "sh", "-c",
			"test -t 0 && test -t 1 && until test \"$(stty size)\" = '33 77'; do sleep 0.05; done; echo ready; read "+
				"line; echo got $line; sleep 1")
		shows("ready")
		if _, err := person.WriteString("hello\r"); err != nil {
			t.Fatal(err)
		}
		shows("got hello")
		s.ended.Wait()
		if s.code != 0 {
			t.Errorf("%s: exit code %d: %q", name, s.code, screen.String())
		}
		_ = program.Close()
		_ = person.Close()
		showing.Wait()
	}
}

// compareFollowed compares commands that print the log of a container while it grows.
func (c *streaming) compareFollowed(t *testing.T, server, copy *userTerminal, args ...string) {
	a, b := server.begin(t, args...), copy.begin(t, args...)
	// An attached client receives only new lines, and prints nothing when it is attached.
	marker := "begin of " + t.Name()
	expect.Eventually(t, patience, func() error {
		if err := c.cluster.AppendLog(marker); err != nil {
			return err
		}
		for _, s := range []*session{a, b} {
			if !strings.Contains(s.out.String(), marker) {
				return fmt.Errorf("stdout %q, stderr %q", s.out.String(), s.err.String())
			}
		}
		return nil
	})
	const lines = 20
	for i := range lines {
		if err := c.cluster.AppendLog(fmt.Sprintf("%s %d", t.Name(), i)); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("%s %d\n", t.Name(), lines-1)
	var texts []string
	for _, s := range []*session{a, b} {
		s.prints(t, last)
		s.stop()
		_, text, _ := strings.Cut(s.out.String(), marker)
		texts = append(texts, strings.ReplaceAll(text, marker+"\n", "")+s.err.String())
	}
	if texts[0] != texts[1] || strings.Count(texts[0], "\n"+t.Name()+" ") < lines {
		t.Errorf("kubectl %v: server %q, replica %q", args, texts[0], texts[1])
	}
	if args[0] == "logs" && !strings.HasPrefix(b.out.String(), "line 0\nline 1\nline 2\n") {
		t.Errorf("the log begins with %q", brief(b.out.String()))
	}
}

// forwarding matches the line by which kubectl reports the port it listens on.
var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 80\n`)

// compareForwarded sends requests to a program through port-forward.
func (c *streaming) compareForwarded(t *testing.T, server, copy *userTerminal) {
	var texts []string
	for _, k := range []*userTerminal{server, copy} {
		s := k.begin(t, "port-forward", "--address=127.0.0.1", "pod/web", ":80")
		s.prints(t, " -> 80\n")
		found := forwarding.FindStringSubmatch(s.out.String())
		if found == nil {
			t.Fatalf("kubectl port-forward: %q %q", s.out.String(), s.err.String())
		}
		text := ""
		for i := range 3 {
			resp, err := http.Get(fmt.Sprintf("http://%s/page/%d?a=b", found[1], i))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			text += string(body)
		}
		texts = append(texts, text)
		s.stop()
	}
	if texts[0] != texts[1] || !strings.Contains(texts[1], "GET /page/2?a=b x") || len(texts[1]) < 3<<20 {
		t.Errorf("the pages differ: %d and %d bytes", len(texts[0]), len(texts[1]))
	}
}

// compareCopied copies a file to a container and back.
func (c *streaming) compareCopied(t *testing.T, server, copy *userTerminal) {
	dir := t.TempDir()
	content := strings.Repeat("content\n", 100_000)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var outputs []output
	for i, k := range []*userTerminal{server, copy} {
		inside, back := fmt.Sprintf("copied-%d", i), filepath.Join(dir, fmt.Sprintf("back-%d", i))
		all := output{}
		for _, args := range [][]string{
			{"cp", file, "web:" + inside, "-c", "main"},
			{"cp", "web:" + inside, back, "-c", "main"},
		} {
			o := k.input(t.Context(), "", args...)
			all.stdout, all.stderr, all.code = all.stdout+o.stdout, all.stderr+o.stderr, all.code+o.code
		}
		if got, err := os.ReadFile(back); err != nil || string(got) != content {
			t.Errorf("%d bytes of %d are copied: %v %v", len(got), len(content), err, all)
		}
		outputs = append(outputs, all)
	}
	if unlike := differ(outputs[0], outputs[1]); unlike != "" {
		t.Error(unlike)
	}
}

// compareDebugged adds an ephemeral container, and attaches to it.
func (c *streaming) compareDebugged(t *testing.T, server, copy *userTerminal, protocol string) {
	var texts []string
	for i, k := range []*userTerminal{server, copy} {
		name := fmt.Sprintf("debug-%s-%d", protocol, i)
		s := k.begin(t, "debug", "web", "--image=tool", "--container="+name, "--attach", "--", "sh")
		expect.Eventually(t, patience, func() error {
			if err := c.cluster.AppendLog("to " + name); err != nil {
				return err
			}
			if !strings.Contains(s.out.String(), "to "+name) {
				return fmt.Errorf("stdout %q, stderr %q", s.out.String(), s.err.String())
			}
			return nil
		})
		s.stop()
		o := k.input(t.Context(), "", "exec", "web", "-c", name, "--", "echo", "in the tool")
		list := k.input(t.Context(), "", "get", "pod", "web", "-o",
			"jsonpath={.spec.ephemeralContainers[-1:].name} {.status.ephemeralContainerStatuses[-1:].name}")
		text := s.err.String() + fmt.Sprint(o, list)
		if o.code != 0 || list.stdout != name+" "+name {
			t.Errorf("kubectl debug: %s", text)
		}
		texts = append(texts, strings.ReplaceAll(text, name, "debug"))
	}
	if texts[0] != texts[1] {
		t.Errorf("kubectl debug: server %q, replica %q", texts[0], texts[1])
	}
}

// checkRefusals checks a user without the rights, and callers whose credentials cannot be
// passed on: the owner, and users with a client certificate.
func (c *streaming) checkRefusals(t *testing.T, certificate *rest.TLSClientConfig) {
	of := func(config *rest.Config, change func(*rest.Config)) *userTerminal {
		config = rest.CopyConfig(config)
		change(config)
		return c.terminalOf(t, config)
	}
	reader := func(r *rest.Config) { r.BearerToken = c.cluster.UserConfig("reader").BearerToken }
	server, copy := of(c.direct, reader), of(c.through, reader)
	owner := of(c.through, func(r *rest.Config) { r.BearerToken = c.process.Token })
	jane := of(c.through, func(r *rest.Config) {
		r.BearerToken, r.CertData, r.KeyData = "", certificate.CertData, certificate.KeyData
	})
	for _, line := range []string{
		"logs web", "exec web -c main -- true", "attach web -c main", "port-forward web 0:80", "cp web:a b -c main",
		"debug web --image=tool -c tool",
	} {
		args := words(line)
		a, b := server.input(t.Context(), "", args...), copy.input(t.Context(), "", args...)
		if a.code == 0 || !strings.Contains(a.stderr, "orbidden") || !strings.Contains(a.stderr, `"reader" cannot`) {
			t.Errorf("kubectl %s: the cluster does not refuse it: %d %s", line, a.code, a.stderr)
		}
		if unlike := differ(a, b); unlike != "" {
			t.Errorf("kubectl %s\n%s", line, unlike)
		}
		for name, k := range map[string]*userTerminal{"the owner": owner, "a certificate": jane} {
			if o := k.input(t.Context(), "", args...); o.code == 0 || !strings.Contains(o.stderr, c.direct.Host) {
				t.Errorf("kubectl %s of %s: %d %s, want one that names %s", line, name, o.code, o.stderr, c.direct.Host)
			}
		}
	}
	// The same credentials do read the copy.
	for name, k := range map[string]*userTerminal{"the owner": owner, "a certificate": jane} {
		if o := k.input(t.Context(), "", "get", "pod", "web", "-o", "name"); o.stdout != "pod/web\n" {
			t.Errorf("kubectl get of %s: %v", name, o)
		}
	}
}

// newCertificate returns the certificate of a user and the file of its authority.
func newCertificate(t *testing.T, user string) *rest.TLSClientConfig {
	t.Helper()
	ca, err := authority.New("users")
	if err != nil {
		t.Fatal(err)
	}
	c := &rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "users.crt")}
	if c.CertData, c.KeyData, err = ca.Client(user); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.CAFile, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

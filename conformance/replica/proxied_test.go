// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// compareProxied sends requests to a program in a pod: with kubectl get --raw, and through
// kubectl proxy, one of them for another protocol.
func (c *streaming) compareProxied(t *testing.T) {
	address := reachableAddress()
	if address == "" {
		t.Skip("kube-apiserver does not pass requests on to a loopback address, and this machine has no other one")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skip(err)
	}
	program := httptest.NewUnstartedServer(http.HandlerFunc(probe))
	_ = program.Listener.Close()
	program.Listener = listener
	program.Start()
	defer program.Close()
	patch := fmt.Sprintf(`{"status":{"podIP":%[1]q,"podIPs":[{"ip":%[1]q}]}}`, address)
	if _, err := c.client(t, c.direct).CoreV1().Pods("default").Patch(t.Context(), "page", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/api/v1/namespaces/default/pods/page:%d/proxy", listener.Addr().(*net.TCPAddr).Port)
	var texts []string
	for _, k := range []*userTerminal{c.terminalOf(t, c.direct), c.terminalOf(t, c.through)} {
		text := ""
		for _, page := range []string{"/page?a=b", "/moved", "/missing"} {
			o := k.input(t.Context(), "", "get", "--raw", path+page)
			text += fmt.Sprintf("%d %s %s\n", o.code, o.stdout, o.stderr)
		}
		s := k.begin(t, "proxy", "--port=0")
		s.prints(t, "Starting to serve on ")
		s.prints(t, "\n")
		words := strings.Fields(s.out.String())
		more, err := askProgram(words[len(words)-1], path+"/page?a=b")
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text+more)
		s.stop()
	}
	if texts[0] != texts[1] {
		t.Errorf("the server passes back %q, the replica %q", texts[0], texts[1])
	}
	for _, want := range []string{
		"0 GET /page?a=b", "0 GET /page ", "1 ", "200 POST /page?a=b some text", "101 Switching Protocols hello\n",
	} {
		if !strings.Contains(texts[0], want) {
			t.Errorf("no %q in %q", want, texts[0])
		}
	}
}

// reachableAddress returns an IPv4 address of this machine that is not a loopback address, ""
// if it has none.
func reachableAddress() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// probe is a program in a pod. It shows the request, or echoes bytes in the protocol that the
// client asks for.
func probe(w http.ResponseWriter, r *http.Request) {
	protocol := r.Header.Get("Upgrade")
	switch {
	case r.URL.Path == "/moved":
		http.Redirect(w, r, "/page", http.StatusFound)
	case r.URL.Path == "/missing":
		http.NotFound(w, r)
	case protocol == "":
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, body)
	default:
		conn, received, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			protocol)
		_, _ = io.Copy(conn, received)
	}
}

// askProgram returns what the program responds to a request, and to one for another protocol.
func askProgram(address, path string) (string, error) {
	resp, err := http.Post("http://"+address+path, "text/plain", strings.NewReader("some text"))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path,
		address); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(reader, nil)
	if err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "", err
	}
	line, err := reader.ReadString('\n')
	return fmt.Sprintf("%d %s\n%s %s", resp.StatusCode, page, upgraded.Status, line), err
}

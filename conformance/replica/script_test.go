// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/conformance/program"
)

// settleTime is how long the sides of a script may take to become equal where controllers
// have to act first.
const settleTime = 40 * time.Second

// side runs the commands of a script in one namespace.
type side struct {
	namespace string
	// programs are paths by name, and env is the environment.
	programs map[string]string
	env      []string
	// fill replaces the placeholders of a command, and plain replaces the names of this
	// side in an output, so that the outputs of both sides can be compared.
	fill, plain *strings.Replacer
}

// step is one command of a script.
type step struct {
	program string
	args    string
	// fails means that the command must not succeed.
	fails bool
	// last compares only the last line that is printed, since the lines before are about the
	// progress. sorted ignores the order of lines.
	last, sorted bool
	// quiet compares only the exit codes, since what is printed depends on how fast
	// controllers are.
	quiet bool
	// later repeats the command until both sides print the same: it shows work of
	// controllers. until repeats it until it succeeds.
	later, until bool
}

// parseStep returns the step of a line: words that are fields of step, ! for fails, and the
// command.
func parseStep(line string) (step, error) {
	var s step
	for {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "!":
			s.fails = true
		case "last":
			s.last = true
		case "sorted":
			s.sorted = true
		case "quiet":
			s.quiet = true
		case "later":
			s.later = true
		case "until":
			s.until = true
		case "kubectl", "helm", "curl":
			s.program, s.args = word, rest
			return s, nil
		default:
			return s, fmt.Errorf("line %q: %q is not a program", line, word)
		}
		line = rest
	}
}

func (s *step) String() string { return s.program + " " + s.args }

// run runs the command of a step.
func (d *side) run(ctx context.Context, s *step) output {
	end := time.Now().Add(settleTime)
	for {
		o := d.runOnce(ctx, s)
		if !s.until || o.code == 0 || time.Now().After(end) {
			return o
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (d *side) runOnce(ctx context.Context, s *step) output {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	// The child must not outlive the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, d.programs[s.program], words(d.fill.Replace(s.args))...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = d.env, &stdout, &stderr, program.ChildAttr()
	err := cmd.Run()
	// Indented JSON ends with a line break at the replica, and without one at the API server.
	o := output{stdout: d.normal(strings.TrimRight(stdout.String(), "\n")), stderr: d.normal(stderr.String())}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		o.stderr, o.code = err.Error(), -1
	}
	if s.last {
		lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
		o.stdout = lines[len(lines)-1]
	}
	if s.quiet {
		o.stdout, o.stderr = "", ""
	}
	if s.sorted {
		o.stdout, o.stderr = sortLines(o.stdout), sortLines(o.stderr)
	}
	return o
}

// chance matches what differs between two runs of the same commands: identifiers, versions,
// times, addresses and tokens. The names that controllers invent have no vowels.
var chance = []struct {
	pattern *regexp.Regexp
	instead string
}{
	// kubectl logs this if its own timeout ends a watch that has just begun.
	{regexp.MustCompile(`(?m)^[IWE]\d{4} .*very short watch.*\n?`), ""},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`resourceVersion(\\?"?): ?\\?"?\d+\\?"?`), "resourceVersion$1: VERSION"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| [+-]\d{4}( UTC)?)?`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`\b(LIVE|MERGED)-\d+`), "$1"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`), "TOKEN"},
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "-ID"},
	{regexp.MustCompile(`\b[bcdfghjklmnpqrstvwxz2456789]{6,10}\b`), "HASH"},
}

// normal returns an output without what differs between the sides.
func (d *side) normal(text string) string {
	text = d.plain.Replace(text)
	for _, c := range chance {
		text = c.pattern.ReplaceAllString(text, c.instead)
	}
	return text
}

// runScript runs every command of a script on both sides at once and compares the outputs.
// Then it compares the objects. It returns how many commands were equal.
func runScript(t *testing.T, direct, passed *side, script string) (equal int) {
	ctx := t.Context()
	for line := range strings.Lines("kubectl create ns {ns}\n" + strings.TrimSpace(script)) {
		s, err := parseStep(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(settleTime)
		for {
			ended := make(chan output)
			go func() { ended <- passed.run(ctx, &s) }()
			a := direct.run(ctx, &s)
			unlike := differ(a, <-ended)
			if unlike == "" && s.fails == (a.code != 0) {
				equal++
				break
			}
			if s.later && time.Now().Before(end) {
				time.Sleep(300 * time.Millisecond) // both sides catch up
				continue
			}
			if unlike == "" {
				t.Errorf("%s: exit code %d at the API server:\n%s%s", &s, a.code, a.stdout, a.stderr)
			} else {
				t.Errorf("%s\n%s", &s, unlike)
			}
			break
		}
	}
	compareObjects(t, direct, passed)
	return equal
}

// objectKinds are the kinds of objects that are compared after a script.
const objectKinds = "cm,secrets,svc,sa,deploy,rs,sts,ds,jobs,cj,hpa,roles,rolebindings,ing,pdb,quota,pods,endpointslices,controllerrevisions"

// compareObjects compares the objects that a script has left: those of both namespaces at
// the API server, and those of one namespace at the API server and at the replica.
func compareObjects(t *testing.T, direct, passed *side) {
	t.Helper()
	read := func(s *side, namespace string) string {
		o := s.runOnce(t.Context(), &step{
			program: "kubectl", args: "get " + objectKinds + " -o json --show-managed-fields -n " + namespace,
		})
		if o.code != 0 {
			return fmt.Sprintf("exit code %d: %s", o.code, o.stderr)
		}
		text, err := normalObjects(o.stdout)
		if err != nil {
			return err.Error()
		}
		// Each side knows only its own namespace.
		return strings.ReplaceAll(strings.ReplaceAll(text, passed.namespace, "NS"), direct.namespace, "NS")
	}
	var unlike string
	for end := time.Now().Add(settleTime); ; time.Sleep(500 * time.Millisecond) {
		a, b, c := read(direct, direct.namespace), read(direct, passed.namespace), read(passed, passed.namespace)
		if unlike = firstDifference(a, b); unlike != "" {
			unlike = "objects of both namespaces:\n" + unlike
		} else if unlike = firstDifference(b, c); unlike != "" {
			unlike = "objects at the replica:\n" + unlike
		}
		if unlike == "" || time.Now().After(end) {
			break
		}
	}
	if unlike != "" {
		t.Error(unlike)
	}
}

// normalObjects returns a list of objects as indented JSON, with the entries of managed
// fields in a fixed order.
func normalObjects(list string) (string, error) {
	v, err := fromJSON([]byte(list))
	if err != nil {
		return "", err
	}
	items, ok := at(v, "items").([]any)
	if !ok {
		return "", errors.New("this is not a list")
	}
	for _, item := range items {
		entries, _ := at(item, "metadata", "managedFields").([]any)
		slices.SortFunc(entries, func(a, b any) int {
			return cmp.Or(strings.Compare(text(a, "manager"), text(b, "manager")),
				strings.Compare(text(a, "operation"), text(b, "operation")),
				strings.Compare(text(a, "subresource"), text(b, "subresource")))
		})
	}
	out, err := json.MarshalIndent(v, "", " ")
	return string(out), err
}

// firstDifference returns the first lines that differ and some before them, "" if there are
// none.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			from := max(0, i-12)
			return fmt.Sprintf("line %d: %s\n--- instead of\n%s", i, strings.Join(y[from:min(len(y), i+6)], "\n"),
				strings.Join(x[from:min(len(x), i+6)], "\n"))
		}
	}
	return ""
}

// writeFiles copies the files of testdata/writes to a folder, with the names of a side.
func (d *side) writeFiles(dir string) error {
	const from = "testdata/writes"
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, []byte(d.fill.Replace(string(content))), 0o600)
	})
}

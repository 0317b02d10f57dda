// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are settings of every type.
type settings struct {
	keys      *config.Set
	address   string
	history   int64
	workers   int
	delay     time.Duration
	secure    bool
	resources []string
	contexts  []string
}

func newSettings() *settings {
	s := &settings{keys: config.NewSet()}
	section := s.keys.Section("All")
	section.String(&s.address, "address", "listen", "127.0.0.1:1", "the `address` to serve at").Short("a")
	section.Int64(&s.history, "limits.historyMiB", "history", 256, "how much to keep").AtLeast(1,
		"nothing would be kept").Reloads()
	section.Int(&s.workers, "limits.workers", "workers", 4, "how many work").AtLeast(0, "use 0 for none")
	section.Duration(&s.delay, "limits.delay", "delay", time.Second, "how long to wait").AtLeast(0, "time goes forward")
	section.Bool(&s.secure, "tls.secure.enabled", "secure", false, "use TLS")
	section.Strings(&s.resources, "mirror.resources", "resources", []string{"*", "events"}, "what to mirror").Reloads()
	section.Repeated(&s.contexts, "mirror.contexts", "context", "a context; may be repeated")
	return s
}

// load loads flags, variables and a file.
func (s *settings) load(args []string, variables map[string]string, file string) error {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.keys.AddTo(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	var content []byte
	if file != "" {
		content = []byte(header + file)
	}
	return s.keys.Load("f.yaml", content, func(name string) string { return variables[name] })
}

const header = "apiVersion: config.watershed.dev/v1alpha1\nkind: Configuration\n"

// values returns the values and their origins by key.
func (s *settings) values() map[string]string {
	all := map[string]string{}
	for _, k := range s.keys.Keys() {
		all[k.Path] = fmt.Sprintf("%v (%s)", k.Value(), k.Origin())
	}
	return all
}

func TestLoad_precedence(t *testing.T) {
	file := `
address: file:1
limits: {historyMiB: 1, workers: 1, delay: 1m}
tls: {secure: {enabled: true}}
mirror:
  resources: [pods]
  contexts: ["a,b", c]
`
	s := newSettings()
	err := s.load(
		[]string{"-a", "flag:1", "--context", "x,y", "--context", "z"},
		map[string]string{
			"WATERSHED_LISTEN":    "variable:1",
			"WATERSHED_HISTORY":   "2",
			"WATERSHED_RESOURCES": `nodes,"a,b"`,
			"WATERSHED_WORKERS":   "",
			"WATERSHED_CONTEXT":   "no",
		},
		file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"address":            "flag:1 (flag --listen)",
		"limits.historyMiB":  "2 (variable WATERSHED_HISTORY)",
		"limits.workers":     "1 (file f.yaml:5:34)",
		"limits.delay":       "1m0s (file f.yaml:5:44)",
		"tls.secure.enabled": "true (file f.yaml:6:25)",
		"mirror.resources":   "[nodes a,b] (variable WATERSHED_RESOURCES)",
		"mirror.contexts":    "[x,y z] (flag --context)",
	}
	if diff := cmp.Diff(want, s.values()); diff != "" {
		t.Error(diff)
	}
	s = newSettings()
	if err := s.load(nil, nil, ""); err != nil {
		t.Fatal(err)
	}
	want = map[string]string{
		"address": "127.0.0.1:1 (default)", "limits.historyMiB": "256 (default)", "limits.workers": "4 (default)",
		"limits.delay":       "1s (default)",
		"tls.secure.enabled": "false (default)", "mirror.resources": "[* events] (default)",
		"mirror.contexts": "[] (default)",
	}
	if diff := cmp.Diff(want, s.values()); diff != "" {
		t.Error(diff)
	}
}

// TestLoad_reportsAllErrors has every kind of mistake in one file.
func TestLoad_reportsAllErrors(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"types", `
address: 7443
limits:
  historyMiB: "12"
  workers: 1.5
  delay: 30
  dely: 1s
tls:
  secure: true
mirror:
  resources: pods
  contexts: [a, 1, [b]]
`, []string{
			`f.yaml:4:10: address: want a text, found 7443: a text would be in quotes`,
			`f.yaml:6:15: limits.historyMiB: want a whole number, found the text "12"`,
			`f.yaml:7:12: limits.workers: want a whole number, found 1.5: a text would be in quotes`,
			`f.yaml:8:10: limits.delay: want a duration such as 10s or 1m30s, found 30: a text would be in quotes`,
			`f.yaml:9:3: unknown key limits.dely: did you mean limits.delay?`,
			`f.yaml:11:11: tls.secure: want keys and values, found true: a text would be in quotes`,
			`f.yaml:13:14: mirror.resources: want a list of texts, found the text "pods"`,
			`f.yaml:14:17: mirror.contexts[1]: want a text, found 1: a text would be in quotes`,
			`f.yaml:14:20: mirror.contexts[2]: want a text, found a list`,
		}},
		{"values", `
limits: {historyMiB: 0, workers: -1, delay: soon}
address:
`, []string{
			`f.yaml:5:9: address: want a text, found no value: remove the key to use the default`,
			`f.yaml:4:22: limits.historyMiB: the least value is 1: nothing would be kept`,
			`f.yaml:4:34: limits.workers: the least value is 0: use 0 for none`,
			`f.yaml:4:45: limits.delay: want a duration such as 10s or 1m30s, found "soon"`,
		}},
		{"names", `
Limits: {}
historyMiB: 5
max-workers: 3
workers: 3
addrezz: a
address: b
address: c
`, []string{
			`f.yaml:4:1: unknown key Limits: did you mean limits?`,
			`f.yaml:5:1: unknown key historyMiB: did you mean limits.historyMiB?`,
			`f.yaml:6:1: unknown key max-workers`,
			`f.yaml:7:1: unknown key workers: did you mean limits.workers?`,
			`f.yaml:8:1: unknown key addrezz: did you mean address?`,
			`f.yaml:10:1: address occurs twice`,
		}},
		{"clusters", `
clusters:
- name: a
  labels: {env: prod, tier: 1, "bad key!": x, long: "not a value"}
- labels: {env: prod}
- name: a
- name: b
  label: {}
- plain
`, []string{
			`f.yaml:6:29: clusters: label tier: want a text, found 1: a text would be in quotes`,
			`f.yaml:6:32: clusters: label "bad key!": name part must consist of`,
			`f.yaml:6:53: clusters: value of label long: a valid label must be`,
			`f.yaml:7:3: clusters: an entry has no name`,
			`f.yaml:10:3: clusters: unknown key label: did you mean labels?`,
			`f.yaml:11:3: clusters: want name and labels, found the text "plain"`,
		}},
		{
			"a second document", "address: a\n---\naddress: b\n", []string{
				`f.yaml:4:1: the file has a second document: it may have one`,
			},
		},
		{"syntax", "limits: [\n", []string{`f.yaml:3: did not find expected node content`}},
	} {
		t.Run(c.name, func(t *testing.T) { expectProblems(t, newSettings().load(nil, nil, c.file), c.want) })
	}
	t.Run("header", func(t *testing.T) {
		load := func(content string) error {
			return newSettings().keys.Load("f.yaml", []byte(content), func(string) string { return "" })
		}
		expectProblems(t, load("address: a\n"), []string{
			"f.yaml:1:1: apiVersion is missing: add apiVersion: config.watershed.dev/v1alpha1",
			"f.yaml:1:1: kind is missing: add kind: Configuration",
		})
		expectProblems(t, load("apiVersion: v1\nkind: List\n"), []string{
			`f.yaml:1:13: apiVersion: want config.watershed.dev/v1alpha1, found the text "v1"`,
			`f.yaml:2:7: kind: want Configuration, found the text "List"`,
		})
		expectProblems(t, load(""), []string{"f.yaml: the file is empty: it begins with"})
		expectProblems(t, load("# nothing\n"), []string{"f.yaml: the file is empty: it begins with"})
		expectProblems(t, load("- a\n"), []string{"f.yaml:1:1: want keys and values, found a list"})
	})
	t.Run("flags and variables", func(t *testing.T) {
		err := newSettings().load([]string{"--history", "0"}, map[string]string{
			"WATERSHED_WORKERS": "many", "WATERSHED_DELAY": "-1s",
		}, "")
		expectProblems(t, err, []string{
			"--history 0: the least value is 1: nothing would be kept",
			"WATERSHED_WORKERS=many: want a whole number",
			"WATERSHED_DELAY=-1s: the least value is 0s: time goes forward",
		})
	})
}

// expectProblems compares the errors with the beginnings of the wanted ones.
func expectProblems(t *testing.T, err error, want []string) {
	t.Helper()
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("the error is %v", err)
	}
	equal := slices.EqualFunc(problems.Texts(), want, strings.HasPrefix)
	if !equal {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(problems.Texts(), "\n"), strings.Join(want, "\n"))
	}
}

// TestLocate checks that errors about several settings have the places of their values.
func TestLocate(t *testing.T) {
	s := newSettings()
	if err := s.load([]string{"--delay", "2s"}, map[string]string{"WATERSHED_HISTORY": "3"},
		"address: x\n"); err != nil {
		t.Fatal(err)
	}
	err := s.keys.Locate(nil, config.About("listen", "no %s", "listener"), config.Problems{
		config.About("history", "h"), config.About("delay", "d"),
	}, errors.New("other"))
	expectProblems(t, err, []string{"f.yaml:3:10: address: no listener", "WATERSHED_HISTORY: h", "d", "other"})
	if err := s.keys.Locate(nil, nil); err != nil {
		t.Error(err)
	}
}

// TestChanges loads another file with the flags of the first set.
func TestChanges(t *testing.T) {
	first := newSettings()
	if err := first.load([]string{"--context", "a,b", "--history", "7"}, nil,
		"mirror: {resources: [pods]}\nclusters: [{name: a, labels: {env: prod}}]"); err != nil {
		t.Fatal(err)
	}
	second := newSettings()
	if err := second.keys.CopyFlags(first.keys); err != nil {
		t.Fatal(err)
	}
	if err := second.load(nil, nil,
		"address: b\nlimits: {historyMiB: 9}\nmirror: {resources: [pods, nodes], contexts: [c]}"); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, k := range second.keys.Changes(first.keys) {
		paths = append(paths, k.Path)
	}
	if want := []string{"address", "mirror.resources"}; !slices.Equal(paths, want) {
		t.Errorf("the changes are %v, want %v: flags have precedence in both", paths, want)
	}
	if second.history != 7 || !slices.Equal(second.contexts, []string{"a,b"}) {
		t.Errorf("the flags became %d and %q", second.history, second.contexts)
	}
	if want := []config.Cluster{{Name: "a", Labels: map[string]string{"env": "prod"}}}; cmp.Diff(want,
		first.keys.Clusters) != "" || second.keys.Clusters != nil {
		t.Errorf("the clusters are %v and %v", first.keys.Clusters, second.keys.Clusters)
	}
}

// TestPrint checks that the output is a file with the same values.
func TestPrint(t *testing.T) {
	s := newSettings()
	if err := s.load([]string{"--listen", "a: #b"}, map[string]string{"WATERSHED_SECURE": "1"},
		"limits: {historyMiB: 3}\nclusters: [{name: a, labels: {env: prod}}, {name: b}]"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.keys.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := header + `address: "a: #b" # flag --listen
limits:
  historyMiB: 3 # file f.yaml:3:22
  workers: 4 # default
  delay: "1s" # default
tls:
  secure:
    enabled: true # variable WATERSHED_SECURE
mirror:
  resources: ["*","events"] # default
  contexts: [] # default
clusters: # file f.yaml:4:1
- name: "a"
  labels: {"env":"prod"}
- name: "b"
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	again := newSettings()
	if err := again.load(nil, nil, strings.TrimPrefix(out.String(), header)); err != nil ||
		len(again.keys.Changes(s.keys)) > 0 || cmp.Diff(s.keys.Clusters, again.keys.Clusters) != "" {
		t.Errorf("the output is not the same configuration: %v, %v", err, again.values())
	}
}

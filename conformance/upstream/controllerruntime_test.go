// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// suites are the packages of controller-runtime whose tests use informers.
var suites = []string{"cache", "source", "client", "builder", "manager", "controller", "cluster", "handler"}

// attempts is how often a suite, and a spec in it, is run before a failure counts:
// requests to the API server time out on a busy machine, whatever the informer. All
// retries are logged.
const attempts = 2

// chooser is added to controller-runtime's package of informers.
const chooser = `package internal

import (
	"net/http"
	"os"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
)

var chosenInformer = cache.NewSharedIndexInformer

func init() {
	switch os.Getenv("WATERSHED_INFORMER") {
	case "compat", "tap":
		chosenInformer = compat.NewInformer(nil)
	}
}

// Tapped returns a client with a tap, if that is chosen.
func Tapped(client *http.Client) *http.Client {
	if os.Getenv("WATERSHED_INFORMER") != "tap" {
		return client
	}
	out := *client
	if out.Transport == nil {
		out.Transport = http.DefaultTransport
	}
	out.Transport = compat.Tap(out.Transport)
	return &out
}
`

// TestControllerRuntime runs controller-runtime's suites with each of the informers.
func TestControllerRuntime(t *testing.T) {
	w := newWorkspace(t, "controller-runtime")
	// A busy machine takes longer than envtest's 20 s.
	w.env = append(w.env, "KUBEBUILDER_ASSETS="+assets(t, w.dir+"-assets"),
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=3m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=3m")
	w.copyModule(moduleDir(t, "sigs.k8s.io/controller-runtime"))
	w.patch("pkg/cache/internal/informers.go", "newInformer := cache.NewSharedIndexInformer\n",
		"newInformer := chosenInformer\n")
	w.patch("pkg/cache/cache.go", "\t// Use the default Kubernetes Scheme if unset\n",
		"\topts.HTTPClient = internal.Tapped(opts.HTTPClient)\n\n\t// Use the default Kubernetes Scheme if unset\n")
	w.write("pkg/cache/internal/zz_watershed.go", chooser)
	w.requireWatershed()
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			w.t = t
			binary := filepath.Join(w.dir, suite+".test")
			w.run("go", "test", "-vet=off", "-c", "-o", binary, "./pkg/"+suite)
			stock := w.suite(suite, binary, "stock")
			t.Logf("%s: %d tests", suite, len(stock))
			for _, informer := range []string{"compat", "tap"} {
				ours := w.suite(suite, binary, informer)
				if only := without(ours, stock); len(only) > 0 {
					t.Errorf("with %s, and not with stock:\n%s", informer, strings.Join(only, "\n"))
				}
				if only := without(stock, ours); len(only) > 0 {
					t.Errorf("with stock, and not with %s:\n%s", informer, strings.Join(only, "\n"))
				}
			}
		})
	}
}

// without returns the lines that occur more often than in others.
func without(lines, others []string) []string {
	count := map[string]int{}
	for _, line := range others {
		count[line]++
	}
	var out []string
	for _, line := range lines {
		if count[line]--; count[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}

// assets creates the folder in which envtest looks for the control plane.
func assets(t *testing.T, dir string) string {
	t.Helper()
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []binaries.Command{set.Etcd, set.APIServer, set.Kubectl} {
		if _, err := os.Stat(c.Path); err != nil {
			t.Fatalf("%v: make kube builds it", err)
		}
		link := filepath.Join(dir, c.Name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(c.Path, link); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// suite runs a suite with one of the informers, again if it fails, and returns its
// results in order.
func (w *workspace) suite(name, binary, informer string) []string {
	w.t.Helper()
	report := filepath.Join(w.dir, name+"-"+informer+".json")
	for attempt := 1; ; attempt++ {
		cmd := exec.CommandContext(w.t.Context(), binary, "-test.timeout=20m", "-test.v", "-ginkgo.json-report="+report,
			fmt.Sprintf("-ginkgo.flake-attempts=%d", attempts))
		cmd.Dir = filepath.Join(w.dir, "pkg", name)
		cmd.Env = append(append(os.Environ(), w.env...), informerVariable+"="+informer)
		out, err := cmd.CombinedOutput()
		results := append(specs(w.t, report), goTests(string(out))...)
		slices.Sort(results)
		if err == nil {
			return results
		}
		failed := slices.DeleteFunc(slices.Clone(results), func(r string) bool { return !strings.HasPrefix(r, "fail") })
		log := filepath.Join(w.dir, fmt.Sprintf("%s-%s-%d.log", name, informer, attempt))
		if err := os.WriteFile(log, out, 0o644); err != nil {
			w.t.Fatal(err)
		}
		w.t.Logf("%s with %s, attempt %d: %v: see %s\n%s", name, informer, attempt, err, log,
			strings.Join(failed, "\n"))
		if attempt == attempts {
			w.t.Errorf("%s fails with %s", name, informer)
			return results
		}
	}
}

// specs reads Ginkgo's report: a line for each spec.
func specs(t *testing.T, report string) []string {
	t.Helper()
	text, err := os.ReadFile(report)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the suite has only plain tests, or was interrupted
	}
	if err != nil {
		t.Fatal(err)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			NumAttempts             int
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		t.Fatalf("%s: %v", report, err)
	}
	var out []string
	for _, s := range suites {
		for _, r := range s.SpecReports {
			if r.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if r.NumAttempts > 1 {
				t.Logf("%s: tried %d times: %s", filepath.Base(report), r.NumAttempts, name)
			}
			state := r.State
			if state != "passed" && state != "pending" && state != "skipped" {
				state = "failed"
			}
			out = append(out, state+" "+name)
		}
	}
	return out
}

// goTests reads the output of go test: a line for each plain test.
func goTests(output string) []string {
	var out []string
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) >= 3 && fields[0] == "---" {
			state := map[string]string{"PASS:": "passed", "SKIP:": "skipped", "FAIL:": "failed"}[fields[1]]
			if state != "" {
				out = append(out, state+" "+fields[2])
			}
		}
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clientGoFiles are the files of the tests of client-go's informers and their
// dependencies, and whether they use the package's names.
var clientGoFiles = map[string]bool{
	"shared_informer_test.go": true, "controller_test.go": true, "util_test.go": false, "main_test.go": false,
}

// unported are the tests that cannot be run with another informer, and why.
var unported = map[string]string{
	"TestResyncCheckPeriod":                        "reads private fields of client-go's informer",
	"TestProcessDeltasInBatch":                     "calls a private function of client-go",
	"TestReplaceEvents":                            "drives client-go's queue and controller, no informer",
	"TestResetWatch":                               "drives client-go's queue and controller, no informer",
	"TestStoreResourceVersion":                     "drives client-go's queue and controller, no informer",
	"TestStoreResourceVersionWithNonMetaTransform": "drives client-go's queue and controller, no informer",
	"TestDeletionHandlingObjectToName":             "tests a function that compat does not replace",
	"TestDeletedObjectGetObjectName":               "tests a type that compat does not replace",
	"TestDeletedObjectGetKey":                      "tests a type that compat does not replace",
	"Example":                                      "drives client-go's queue and controller, no informer",
	"ExampleNewInformer":                           "has no result of its own beside TestUpdate",
}

// differences are the tests that fail with compat on purpose, and why.
var differences = map[string]string{
	"TestPanicPropagated": "client-go's unshared NewInformer calls the handler in Run, so that the caller of Run can " +
		"recover its panic; " +
		"a shared informer, client-go's or ours, calls handlers on goroutines of their own, and the program ends",
}

// shim replaces the parts of client-go's package that the tests use and that are private
// or make informers.
const shim = `package upstream

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
)

var ours = os.Getenv("WATERSHED_INFORMER") == "compat"

// sharedProcessorRunHook delays a part of client-go's informer that no test can see from outside.
var sharedProcessorRunHook atomic.Pointer[func()]

// sharedIndexInformer is either informer, and notes what client-go's tests read from private fields.
type sharedIndexInformer struct {
	cache.SharedIndexInformer
	clock     any
	processor struct{ clock any }

	mu      sync.Mutex
	started bool
	handles map[cache.ResourceEventHandlerRegistration]bool
}

func newSharedInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration) cache.SharedInformer {
	create := cache.NewSharedIndexInformer
	if ours {
		create = compat.NewInformer(nil)
	}
	return &sharedIndexInformer{SharedIndexInformer: create(lw, example, resync, cache.Indexers{}), handles: map[cache.ResourceEventHandlerRegistration]bool{}}
}

func (s *sharedIndexInformer) note(r cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.handles[r] = true
	}
	return r, err
}

func (s *sharedIndexInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.note(s.SharedIndexInformer.AddEventHandler(h))
}

func (s *sharedIndexInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.note(s.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, period))
}

func (s *sharedIndexInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return s.note(s.SharedIndexInformer.AddEventHandlerWithOptions(h, o))
}

func (s *sharedIndexInformer) RemoveEventHandler(r cache.ResourceEventHandlerRegistration) error {
	s.mu.Lock()
	delete(s.handles, r)
	s.mu.Unlock()
	return s.SharedIndexInformer.RemoveEventHandler(r)
}

func (s *sharedIndexInformer) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
}

func (s *sharedIndexInformer) Run(stop <-chan struct{}) {
	s.begin()
	s.SharedIndexInformer.Run(stop)
}

func (s *sharedIndexInformer) RunWithContext(ctx context.Context) {
	s.begin()
	s.SharedIndexInformer.RunWithContext(ctx)
}

func eventHandlerCount(i cache.SharedInformer) int {
	s := i.(*sharedIndexInformer)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handles)
}

func isStarted(i cache.SharedInformer) bool {
	s := i.(*sharedIndexInformer)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

func isRegistered(i cache.SharedInformer, r cache.ResourceEventHandlerRegistration) bool {
	s := i.(*sharedIndexInformer)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handles[r]
}

func newPlainInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, h cache.ResourceEventHandler) (cache.Store, cache.Controller) {
	if !ours {
		return cache.NewInformer(lw, example, resync, h)
	}
	return newTransformingInformer(lw, example, resync, h, nil)
}

func newTransformingInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, h cache.ResourceEventHandler, transform cache.TransformFunc) (cache.Store, cache.Controller) {
	if !ours {
		return cache.NewTransformingInformer(lw, example, resync, h, transform)
	}
	i := compat.NewInformer(nil)(lw, example, resync, cache.Indexers{})
	if transform != nil {
		if err := i.SetTransform(transform); err != nil {
			panic(err)
		}
	}
	if _, err := i.AddEventHandler(h); err != nil {
		panic(err)
	}
	return i.GetStore(), i
}
`

// TestClientGo runs client-go's tests of its informers with its own and with ours.
func TestClientGo(t *testing.T) {
	w := newWorkspace(t, "client-go")
	w.write("go.mod", "module upstream\n\ngo 1.26.0\n")
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	w.write("go.sum", string(sums))
	w.requireWatershed()
	p := newPort(t, unported)
	from := filepath.Join(moduleDir(t, "k8s.io/client-go"), "tools", "cache")
	for name, public := range clientGoFiles {
		w.write(name, p.file(filepath.Join(from, name), public))
	}
	p.complete()
	w.write("shim_test.go", shim)
	w.run("go", "test", "-vet=off", "-c", "-o", "upstream.test", ".")

	skip := "^(" + strings.Join(slices.Sorted(maps.Keys(differences)), "|") + ")$"
	stock := w.tests("stock", "-skip="+skip)
	ours := w.tests("compat", "-skip="+skip)
	t.Logf("%d tests, and %d that differ on purpose", len(stock), len(differences))
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		if stock[name] != "pass" || ours[name] != "pass" {
			t.Errorf("%s: stock %q, ours %q", name, stock[name], ours[name])
		}
	}
	if len(ours) != len(stock) {
		t.Errorf("%d tests with stock, %d with ours", len(stock), len(ours))
	}
	for name, why := range differences {
		if got := w.tests("stock", "-run=^"+name+"$")[name]; got != "pass" {
			t.Errorf("%s: %q with stock, want pass", name, got)
		}
		if got := w.tests("compat", "-run=^"+name+"$")[name]; got == "pass" {
			t.Errorf("%s passes: it is no difference any more (%s)", name, why)
		}
	}
}

// tests runs the ported tests with one of the informers and returns the result of each.
func (w *workspace) tests(informer string, args ...string) map[string]string {
	w.t.Helper()
	env := w.env
	defer func() { w.env = env }()
	w.env = append(slices.Clone(env), informerVariable+"="+informer)
	out, err := w.try("go", append([]string{"test", "-vet=off", "-json", "-count=1", "-timeout=10m"}, args...)...)
	results := map[string]string{}
	for line := range strings.Lines(out) {
		var event struct{ Action, Test string }
		if json.Unmarshal([]byte(line), &event) != nil || event.Test == "" || strings.Contains(event.Test, "/") {
			continue
		}
		switch event.Action {
		case "run":
			results[event.Test] = "not finished"
		case "pass", "fail", "skip":
			results[event.Test] = event.Action
		}
	}
	if err != nil {
		log := filepath.Join(w.dir, informer+".log")
		if err := os.WriteFile(log, []byte(out), 0o644); err != nil {
			w.t.Fatal(err)
		}
		w.t.Logf("with %s: %v: see %s", informer, err, log)
	}
	return results
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package operators

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/conformance/bench/harness"
)

// operatorsSync is how long the first state of an operator may take.
const operatorsSync = 3 * time.Minute

// operatorTask is the task of a process: one operator with one cache.
type operatorTask struct {
	// URL is the address of the operator's objects.
	URL string
	// Operator is the number of the operator, and Percent its size.
	Operator, Percent int
	// Ours uses compat.NewInformer, and Tap compat.Tap in addition.
	Ours, Tap bool
	// Settle is how long to wait, at least, until the memory has settled.
	Settle time.Duration
	// Steady is how long the operator reconciles at a low rate, first to warm up and then measured.
	Steady time.Duration
	// Profile, if it is not empty, is the file for a CPU profile of the reconciles.
	Profile string
}

// operatorReading is the result that a process has measured of itself.
type operatorReading struct {
	// CPU is the processor time of all measured reconciles, with the changes that caused
	// them and the garbage collection.
	CPU time.Duration
	// P50 and P99 are how long the reads of one reconcile took.
	P50, P99 time.Duration
	// Heap is the live heap at the end. It includes the values that are kept decoded.
	Heap int64
	// Gets, Lists and Objects are the numbers of reads and of objects that the lists
	// returned, per reconcile.
	Gets, Lists, Objects float64
}

// steadyReading is the result of the reconciles at a low rate.
type steadyReading struct {
	// Heap is the live heap at the end.
	Heap int64
	// Share is the share of the cached objects that were read in one minute.
	Share float64
}

// steadyInterval is the time between two reconciles at the low rate: 0.2 per second.
const steadyInterval = 5 * time.Second

// Role is the [harness.Role] of a process with one operator. It syncs, settles and answers. It measures the
// reconciles, at a low rate or at full speed, when the benchmark requests that.
func Role(text []byte, in io.Reader, out io.Writer) error {
	var task operatorTask
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := harness.MeasureFootprint()
	p, err := startOperator(ctx, &task)
	if err != nil {
		return err
	}
	if task.Settle > 0 {
		harness.Settle(task.Settle)
	}
	answers, commands := json.NewEncoder(out), bufio.NewReader(in)
	if err := answers.Encode(true); err != nil {
		return err
	}
	if _, err := commands.ReadString('\n'); err != nil {
		return nil // the benchmark has ended
	}
	defer goruntime.KeepAlive(p)
	if task.Steady > 0 {
		r, err := p.steady(ctx, &task)
		if err != nil {
			return err
		}
		r.Heap = harness.MeasureFootprint().Since(before).Heap
		return answers.Encode(r)
	}
	r, err := p.measure(ctx, &task)
	if err != nil {
		return err
	}
	r.Heap = harness.MeasureFootprint().Since(before).Heap
	return answers.Encode(r)
}

// operatorProcess is an operator with its caches.
type operatorProcess struct {
	*operator
	reads *operatorReads
	// changed receives the keys of changed resources of the first kind.
	changed chan types.NamespacedName
	// objects counts the objects in the caches.
	objects atomic.Int64
}

// startOperator starts the caches and waits until they have synced.
func startOperator(ctx context.Context, task *operatorTask) (*operatorProcess, error) {
	op := operators(task.Percent)[task.Operator]
	p := &operatorProcess{operator: &op, changed: make(chan types.NamespacedName, 2*operatorsBatch)}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for i := range op.kinds {
		op.kinds[i].register(scheme, mapper)
	}
	var caches [2]cache.Cache
	for n := range caches {
		var err error
		if caches[n], err = newOperatorCache(task, &op, n == 1, scheme, mapper); err != nil {
			return nil, err
		}
		if err := p.inform(ctx, caches[n], n == 1); err != nil {
			return nil, err
		}
		go func() { _ = caches[n].Start(ctx) }() // lives as long as the process
	}
	p.reads = &operatorReads{ctx: ctx, main: caches[0], selected: caches[1]}
	limited, cancel := context.WithTimeout(ctx, operatorsSync)
	defer cancel()
	for _, c := range caches {
		if !c.WaitForCacheSync(limited) {
			return nil, fmt.Errorf("the cache of %s did not sync in %v", op.name, operatorsSync)
		}
	}
	return p, nil
}

// register makes the kind known to clients.
func (k *cachedKind) register(scheme *runtime.Scheme, mapper *meta.DefaultRESTMapper) {
	scope := meta.RESTScopeNamespace
	if k.cluster {
		scope = meta.RESTScopeRoot
	}
	gv := k.gvk.GroupVersion()
	mapper.AddSpecific(k.gvk, gv.WithResource(k.plural()), gv.WithResource(strings.ToLower(k.gvk.Kind)), scope)
	switch k.example().(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
	default:
		if !scheme.Recognizes(k.gvk) {
			scheme.AddKnownTypeWithName(k.gvk, k.example())
			scheme.AddKnownTypeWithName(gv.WithKind(k.gvk.Kind+"List"), k.list())
			metav1.AddToGroupVersion(scheme, gv)
		}
	}
}

// newOperatorCache returns the first or the second cache of an operator, with its indexes.
func newOperatorCache(
	task *operatorTask, op *operator, second bool, scheme *runtime.Scheme, mapper meta.RESTMapper,
) (cache.Cache, error) {
	cfg := &rest.Config{Host: task.URL, QPS: -1}
	opts := cache.Options{Scheme: scheme, Mapper: mapper, ByObject: map[client.Object]cache.ByObject{}}
	if task.Ours {
		opts.NewInformer = compat.NewInformer(&compat.Options{Scheme: scheme})
	}
	if task.Tap {
		cfg.Wrap(compat.Tap)
	}
	for i := range op.kinds {
		if k := &op.kinds[i]; k.selector != "" && k.second == second {
			selector, err := labels.Parse(k.selector)
			if err != nil {
				return nil, err
			}
			opts.ByObject[k.example()] = cache.ByObject{Label: selector}
		}
	}
	return cache.New(cfg, opts)
}

// inform starts the informers of a cache, each with a handler, as operators do.
func (p *operatorProcess) inform(ctx context.Context, c cache.Cache, second bool) error {
	for i := range p.kinds {
		k := &p.kinds[i]
		if k.second != second {
			continue
		}
		for field, values := range k.indexes {
			if err := c.IndexField(ctx, k.example(), field, values); err != nil {
				return err
			}
		}
		informer, err := c.GetInformer(ctx, k.example(), cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.objects.Add(1) },
			UpdateFunc: func(_, now any) {
				if o := now.(client.Object); i == 0 {
					p.changed <- client.ObjectKeyFromObject(o)
				}
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the reconciles.
func (p *operatorProcess) measure(ctx context.Context, task *operatorTask) (r operatorReading, err error) {
	if _, err := p.run(ctx, task, p.warm()); err != nil {
		return r, err
	}
	goruntime.GC()
	if task.Profile != "" {
		f, err := os.Create(task.Profile)
		if err != nil {
			return r, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return r, err
		}
		defer pprof.StopCPUProfile()
	}
	*p.reads = operatorReads{ctx: p.reads.ctx, main: p.reads.main, selected: p.reads.selected}
	used := harness.CPUTime()
	took, err := p.run(ctx, task, p.reconciles)
	if err != nil {
		return r, err
	}
	r.CPU = harness.CPUTime() - used
	r.P50, r.P99, _ = took.Quantiles()
	n := float64(len(took))
	r.Gets, r.Lists, r.Objects = float64(p.reads.gets)/n, float64(p.reads.lists)/n, float64(p.reads.objects)/n
	return r, nil
}

// steady reconciles at a low rate, first without and then with recording the reads.
func (p *operatorProcess) steady(ctx context.Context, task *operatorTask) (r steadyReading, err error) {
	for _, p.reads.seen = range []map[string]bool{nil, {}} {
		for began := time.Now(); time.Since(began) < task.Steady; time.Sleep(steadyInterval) {
			if _, err := p.change(ctx, task, 1); err != nil {
				return r, err
			}
		}
	}
	r.Share = float64(len(p.reads.seen)) / float64(p.objects.Load()) / task.Steady.Minutes()
	p.reads.seen = nil
	return r, nil
}

// run requests changes and reconciles them, at least n. It returns how long the reads of
// each took.
func (p *operatorProcess) run(ctx context.Context, task *operatorTask, n int) (all harness.Latencies, err error) {
	for len(all) < n {
		took, err := p.change(ctx, task, p.batch())
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

// change requests n changes and reconciles them. It returns how long the reads of each took.
func (p *operatorProcess) change(ctx context.Context, task *operatorTask, n int) (took harness.Latencies, err error) {
	resp, err := http.Get(fmt.Sprintf("%s%s?n=%d", task.URL, changePath, n))
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // it is empty
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("request changes of %s: %s", p.name, resp.Status)
	}
	for range n {
		select {
		case key := <-p.changed:
			began := time.Now()
			if err := p.reconcile(ctx, p.reads, key); err != nil {
				return nil, fmt.Errorf("reconcile %s of %s: %w", key, p.name, err)
			}
			took = append(took, time.Since(began))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("a change of %s did not arrive", p.name)
		}
	}
	return took, nil
}

const (
	// operatorsStride is the distance between resources that change one after the other.
	operatorsStride = 7919
	// changePath is the last part of the path of requests for changes.
	changePath = "/change"
)

// operatorsServer sends the objects of the operators as an API server does: as watches
// that begin with the state, in protobuf for built-in kinds and metadata and in JSON for
// custom resources. Each process has a path of its own, the name of the operator and a
// number, and requests its changes itself. Objects are made when they are sent.
type operatorsServer struct {
	operators []operator

	// mu guards the watches of each process's first kind, and the number of its changes.
	mu      sync.Mutex
	watches map[string]chan int
	changes map[string]int
}

func newOperatorsServer(all []operator) *operatorsServer {
	return &operatorsServer{operators: all, watches: map[string]chan int{}, changes: map[string]int{}}
}

// ServeHTTP serves /OPERATOR/PROCESS/change?n=CHANGES and /OPERATOR/PROCESS/api…, where OPERATOR is a
// number.
func (s *operatorsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	number, err := strconv.Atoi(parts[0])
	if err != nil || number >= len(s.operators) || len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	op, process := &s.operators[number], parts[0]+"/"+parts[1]
	if "/"+parts[2] == changePath {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || n > op.batch() {
			http.Error(w, "the number of changes is missing or too large", http.StatusBadRequest)
			return
		}
		s.change(w, process, n)
		return
	}
	for i := range op.kinds {
		k := &op.kinds[i]
		if k.path() == "/"+parts[2] && r.URL.Query().Get("watch") == "true" {
			s.watch(w, r, k, process, i == 0)
			return
		}
	}
	http.Error(w, "only watches are served", http.StatusNotFound)
}

// path returns the path of the kind's resource.
func (k *cachedKind) path() string {
	if k.gvk.Group == "" {
		return "/api/" + k.gvk.Version + "/" + k.plural()
	}
	return "/apis/" + k.gvk.Group + "/" + k.gvk.Version + "/" + k.plural()
}

// change changes the next resources of the first kind for one process.
func (s *operatorsServer) change(w http.ResponseWriter, process string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.watches[process]
	if to == nil {
		http.Error(w, "the process does not watch", http.StatusConflict)
		return
	}
	for range n {
		to <- s.changes[process]
		s.changes[process]++
	}
}

// watch sends the state, and then changes if the kind is the operator's first.
func (s *operatorsServer) watch(w http.ResponseWriter, r *http.Request, k *cachedKind, process string, first bool) {
	accept := r.Header.Get("Accept")
	f := form{
		kind:     k,
		metadata: strings.Contains(accept, "as=PartialObjectMetadata"),
		protobuf: strings.HasPrefix(accept, runtime.ContentTypeProtobuf),
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", f.contentType())
	last, err := s.sendState(w, r, f, process, first, selector)
	if err != nil {
		return
	}
	bookmarks := time.NewTicker(time.Minute) // as an API server, so that the connection is not taken for dead
	defer bookmarks.Stop()
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		seconds = 3600
	}
	end := time.After(time.Duration(seconds) * time.Second)
	changes := make(chan int, operatorsBatch)
	if first {
		s.mu.Lock()
		if before := s.watches[process]; before != nil {
			changes = before // the watch continues an earlier one
		}
		s.watches[process] = changes
		s.mu.Unlock()
	}
	for {
		select {
		case <-bookmarks.C:
			if err := f.write(w, watch.Bookmark, last); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		case n := <-changes:
			o := k.changed(n)
			last.SetResourceVersion(o.GetResourceVersion())
			if err := f.write(w, watch.Modified, o); err != nil {
				return
			}
			if len(changes) == 0 {
				w.(http.Flusher).Flush()
			}
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// sendState sends the state if the client requests it, and returns a bookmark with its version, or
// with the version from which the client continues.
func (s *operatorsServer) sendState(
	w http.ResponseWriter, r *http.Request, f form, process string, first bool, selector labels.Selector,
) (last client.Object, err error) {
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	bookmark, latest := f.bookmark(), s.latest(process, f.kind, first)
	for i := range f.kind.count {
		o := f.kind.make(i)
		if n, ok := latest[i]; ok {
			o = f.kind.changed(n)
			bookmark.SetResourceVersion(max(bookmark.GetResourceVersion(), o.GetResourceVersion()))
		}
		if !initial || !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if err := f.write(w, watch.Added, o); err != nil {
			return nil, err
		}
	}
	if initial {
		if err := f.write(w, watch.Bookmark, bookmark); err != nil {
			return nil, err
		}
	}
	w.(http.Flusher).Flush()
	bookmark.SetAnnotations(nil)
	if !initial {
		bookmark.SetResourceVersion(r.URL.Query().Get("resourceVersion"))
	}
	return bookmark, nil
}

// latest returns the last change of each object of the process's first kind that has changed.
func (s *operatorsServer) latest(process string, k *cachedKind, first bool) map[int]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := map[int]int{}
	for n := 0; first && n < s.changes[process]; n++ {
		latest[n*operatorsStride%k.count] = n
	}
	return latest
}

// changed returns the object of change n with its new state.
func (k *cachedKind) changed(n int) client.Object {
	o := k.make(n * operatorsStride % k.count)
	o.SetResourceVersion(strconv.Itoa(operatorsVersion + k.count + n))
	o.SetGeneration(int64(n + 2))
	all := o.GetAnnotations()
	all["example.com/changed"] = strconv.Itoa(n)
	o.SetAnnotations(all)
	return o
}

// form is how the objects of a kind are sent.
type form struct {
	kind               *cachedKind
	metadata, protobuf bool
}

func (f form) contentType() string {
	if !f.protobuf {
		return runtime.ContentTypeJSON
	}
	if f.metadata {
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1;stream=watch"
	}
	return runtime.ContentTypeProtobuf + ";stream=watch"
}

// bookmark returns the object that ends the state.
func (f form) bookmark() client.Object {
	o := f.kind.make(0)
	o.SetResourceVersion(strconv.Itoa(operatorsVersion + f.kind.count))
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}

// write writes one event.
func (f form) write(w http.ResponseWriter, event watch.EventType, o client.Object) error {
	o.GetObjectKind().SetGroupVersionKind(f.kind.gvk)
	if f.metadata {
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			Generation:        o.GetGeneration(),
			CreationTimestamp: o.GetCreationTimestamp(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
			ManagedFields: o.GetManagedFields(),
		}}
		m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		m.APIVersion = "meta.k8s.io/v1"
		o = m
	}
	if f.protobuf {
		frame, err := harness.EncodeObjectEvent(event, o)
		if err == nil {
			_, err = w.Write(frame)
		}
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", event, text)
	}
	return err
}

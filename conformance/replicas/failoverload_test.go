// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/expect"
)

func isAlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }

// failoverLoad are watches and requests of client-go.
type failoverLoad struct {
	t       *testing.T
	clients []dynamic.Interface
	watches []*followed
	cancel  context.CancelFunc
	running sync.WaitGroup

	requests, again, failed atomic.Int64

	mu sync.Mutex
	// ended is when the last replica was ended.
	ended time.Time
	// disturbed has how long requests took, with their repetition, that were in progress when a replica
	// was ended or began within failoverTime after that.
	disturbed []time.Duration
}

// failoverTime is how long after the end of a replica a request counts as one of the fail-over.
const failoverTime = 5 * time.Second

// failoverClients is how many clients share the watches, and how many others the requests. Each has a
// connection of its own. The requests are apart because of net/http: if a request is written to a
// connection that has just broken, before the break was read, the watches on it end with an error that
// client-go does not take for a broken connection, and client-go then lists again.
const failoverClients = 10

// idleResources are resources that do not change. Of config maps, which change in another namespace,
// an idle namespace and a selector without objects are watched.
var idleResources = []struct {
	resource            schema.GroupVersionResource
	namespace, selector string
}{
	{clusterRoleBindingResource, "", ""},
	{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "", ""},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "", ""},
	{configMapResource, quietNamespace, ""},
	{configMapResource, "", "absent=true"},
	{schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "kube-system", ""},
}

var (
	configMapResource          = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	clusterRoleBindingResource = schema.GroupVersionResource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings",
	}
)

// startFailoverLoad starts watches, half of them of resources that do not change, and so many requests
// in a second. It returns when all watches have a state.
func startFailoverLoad(t *testing.T, config *rest.Config, watches, rate int) *failoverLoad {
	ctx, cancel := context.WithCancel(t.Context())
	l := &failoverLoad{t: t, cancel: cancel}
	t.Cleanup(func() {
		cancel()
		l.running.Wait()
	})
	for range 2 * failoverClients {
		own := rest.CopyConfig(config)
		own.Dial = (&net.Dialer{Timeout: time.Second}).DialContext // its own transport
		client, err := dynamic.NewForConfig(own)
		expect.NoError(t, err)
		l.clients = append(l.clients, client)
	}
	for i := range watches {
		f := &followed{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), busy: i%2 == 0}
		of := idleResources[i/2%len(idleResources)]
		if f.busy {
			of.resource, of.namespace, of.selector = configMapResource, busyNamespace, ""
		}
		f.client = l.clients[i%failoverClients].Resource(of.resource).Namespace(of.namespace)
		f.selector = of.selector
		f.name = fmt.Sprintf("watch %d of %s in %q with %q", i, of.resource.Resource, of.namespace, of.selector)
		l.watches = append(l.watches, f)
		l.running.Go(func() { f.run(ctx) })
	}
	for i := range rate {
		l.running.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / time.Duration(rate)) // they are spread over the second
			l.request(ctx, l.clients[failoverClients+i%failoverClients], i)
		})
	}
	expect.Eventually(t, 2*patience, func() error {
		for _, f := range l.watches {
			if f.lists.Load() == 0 {
				return fmt.Errorf("%s has no state", f.name)
			}
		}
		return nil
	})
	return l
}

// request sends a request each second, and repeats it once if it fails.
func (l *failoverLoad) request(ctx context.Context, client dynamic.Interface, number int) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	maps := client.Resource(configMapResource).Namespace(busyNamespace)
	send := func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if number%2 == 0 {
			_, err = maps.Get(ctx, counterName, metav1.GetOptions{})
		} else {
			_, err = maps.List(ctx, metav1.ListOptions{Limit: 10})
		}
		return err
	}
	for ctx.Err() == nil {
		l.requests.Add(1)
		began := time.Now()
		if err := send(); err != nil && ctx.Err() == nil {
			l.again.Add(1)
			if err := send(); err != nil && ctx.Err() == nil {
				l.failed.Add(1)
				l.t.Logf("a request failed twice: %v", err)
			}
		}
		l.took(began)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// disturb records that a replica is being ended.
func (l *failoverLoad) disturb() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = time.Now()
}

// took records how long a request took if it is one of a fail-over.
func (l *failoverLoad) took(began time.Time) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended.IsZero() && now.After(l.ended) && began.Before(l.ended.Add(failoverTime)) {
		l.disturbed = append(l.disturbed, now.Sub(began))
	}
}

// p99 returns what 99 of 100 requests of fail-overs took at most, 0 if there were none.
func (l *failoverLoad) p99() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.disturbed) == 0 {
		return 0
	}
	slices.Sort(l.disturbed)
	return l.disturbed[len(l.disturbed)*99/100]
}

// reset begins a new measurement.
func (l *failoverLoad) reset() {
	l.mu.Lock()
	l.ended, l.disturbed = time.Time{}, nil
	l.mu.Unlock()
	l.requests.Store(0)
	l.again.Store(0)
	l.failed.Store(0)
	for _, f := range l.watches {
		f.reset()
	}
}

// String returns the results of the measurement.
func (l *failoverLoad) String() string {
	busy, idle, expired, broken := 0, 0, int64(0), int64(0)
	silence := time.Duration(0)
	for _, f := range l.watches {
		if n := f.relists(); n > 0 && f.busy {
			busy++
		} else if n > 0 {
			idle++
		}
		silence = max(silence, f.longest())
		expired, broken = expired+f.expired.Load(), broken+f.broken.Load()
	}
	return fmt.Sprintf("requests=%d retried=%d failed-after-retry=%d request-ms-p99=%d silence-ms-max=%d "+
		"relists-busy=%d relists-idle=%d versions-expired=%d other-errors=%d",
		l.requests.Load(), l.again.Load(), l.failed.Load(), l.p99().Milliseconds(), silence.Milliseconds(), busy, idle,
		expired, broken)
}

// refusals returns the errors of requests for watches, with how often each occurred.
func (l *failoverLoad) refusals() map[string]int {
	all := map[string]int{}
	for _, f := range l.watches {
		f.mu.Lock()
		for _, text := range f.refused {
			if i := strings.LastIndex(text, `": `); i >= 0 {
				text = text[i+3:] // without the address and the query
			}
			all[text]++
		}
		f.mu.Unlock()
	}
	return all
}

// finish waits until all watches have the newest state, and checks that none has missed an event.
func (l *failoverLoad) finish(newest int) {
	for _, f := range l.watches {
		if f.busy {
			expect.Eventually(l.t, patience, func() error {
				if n := f.number(); n != newest {
					return fmt.Errorf("%s has %d, want %d", f.name, n, newest)
				}
				return nil
			})
		}
		if err := f.differs(l.t.Context()); err != nil {
			l.t.Error(err)
		}
		f.mu.Lock()
		if len(f.missed) > 0 {
			l.t.Errorf("%s has missed events: %q", f.name, f.missed)
		}
		f.mu.Unlock()
	}
	l.cancel()
	l.running.Wait()
}

// followed is the store of a reflector, which records when events come.
type followed struct {
	cache.Store
	name, selector string
	busy           bool
	client         dynamic.ResourceInterface
	// ofFleet is set for objects of several clusters, which can have the same name. The reflector must
	// list them: it keeps the initial events of a watch by namespace and name.
	ofFleet bool
	// lists counts the states that were read.
	lists atomic.Int64
	// expired counts the watches that ended because of their version, broken those with another error.
	expired, broken atomic.Int64

	mu      sync.Mutex
	before  int64 // lists at the beginning of the measurement
	last    int   // the number of the counter
	at      time.Time
	silence time.Duration
	missed  []string
	refused []string // the errors of requests for watches
}

// run runs client-go's reflector until ctx ends.
func (f *followed) run(ctx context.Context) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = f.selector
			return f.client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = f.selector
			w, err := f.client.Watch(ctx, o)
			if err != nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.refused = append(f.refused, err.Error())
				return nil, err
			}
			return watch.Filter(w, f.countErrors), nil
		},
	}
	var source cache.ListerWatcher = lw
	if f.ofFleet {
		source = listing{lw}
	}
	r := cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, f, cache.ReflectorOptions{Name: f.name})
	r.RunWithContext(ctx)
}

// differs returns an error if the store is not equal to a fresh list.
func (f *followed) differs(ctx context.Context) error {
	list, err := f.client.List(ctx, metav1.ListOptions{LabelSelector: f.selector})
	if err != nil {
		return err
	}
	identity := func(u *unstructured.Unstructured) string {
		return u.GetAnnotations()[clusterAnnotation] + "/" + u.GetName() + "@" + u.GetResourceVersion()
	}
	var want, got []string
	for i := range list.Items {
		want = append(want, identity(&list.Items[i]))
	}
	for _, o := range f.List() {
		got = append(got, identity(o.(*unstructured.Unstructured)))
	}
	return difference(f.name, got, want)
}

// difference returns an error with the elements that only one of two slices has, nil if there are none.
func difference(of string, got, want []string) error {
	without := func(all, others []string) []string {
		in := map[string]bool{}
		for _, s := range others {
			in[s] = true
		}
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return in[s] })
	}
	lacks, excess := without(want, got), without(got, want)
	if len(got) == len(want) && len(lacks) == 0 && len(excess) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d objects, want %d; it lacks %q and has %q", of, len(got), len(want),
		lacks[:min(10, len(lacks))], excess[:min(10, len(excess))])
}

// listing makes a reflector list before it watches.
type listing struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is called by the reflector.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// countErrors counts the errors that end a watch.
func (f *followed) countErrors(e watch.Event) (watch.Event, bool) {
	if e.Type == watch.Error {
		if err := apierrors.FromObject(e.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			f.expired.Add(1)
		} else {
			f.broken.Add(1)
		}
	}
	return e, true
}

// Replace implements [cache.Store]: a state was read.
func (f *followed) Replace(all []any, version string) error {
	f.lists.Add(1)
	if err := f.Store.Replace(all, version); err != nil {
		return err
	}
	for _, o := range all {
		f.note(o, true)
	}
	return nil
}

// Add implements [cache.Store].
func (f *followed) Add(o any) error { f.note(o, false); return f.Store.Add(o) }

// Update implements [cache.Store].
func (f *followed) Update(o any) error { f.note(o, false); return f.Store.Update(o) }

// note records an event of the counter, which must be the next one unless a state was read.
func (f *followed) note(o any, listed bool) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok || !f.busy || u.GetName() != counterName {
		return
	}
	text, _, _ := unstructured.NestedString(u.Object, "data", "n")
	n, _ := strconv.Atoi(text)
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !listed && n > f.last+1 {
		f.missed = append(f.missed, fmt.Sprintf("%d after %d", n, f.last))
	}
	if !f.at.IsZero() {
		f.silence = max(f.silence, now.Sub(f.at))
	}
	f.last, f.at = n, now
}

func (f *followed) number() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *followed) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = nil
	f.before, f.silence, f.at = f.lists.Load(), 0, time.Now()
	f.expired.Store(0)
	f.broken.Store(0)
}

func (f *followed) relists() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists.Load() - f.before
}

func (f *followed) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.silence
}

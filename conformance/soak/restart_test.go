// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/kubetest"
)

var restarts = flag.Int("soak.restarts", 10, "how often TestRestarts kills the replica")

// TestRestarts kills a replica with files at random moments, while objects are written as
// fast as the API server accepts it. A watch through the replica, which is continued after
// each kill, has the events of a watch of the API server: none is missing, none is repeated,
// and none expires. No version of client-go's informer expires either: it reads the state again
// only when a connection breaks before the response to a watch, as it does with any server. The
// replica never lists at the API server.
func TestRestarts(t *testing.T) {
	k := newKillTest(t)
	rng := rand.New(rand.NewPCG(k.seed, 3))
	key := filepath.Join(t.TempDir(), "key") // without one, secrets are not stored
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReplica(t, k.cluster, "--data-dir", filepath.Join(t.TempDir(), "data"), "--data-key-file", key)
	through, err := restConfig(r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, first, oracle := k.observe(t)
	follower := newPursuit(t, through, first.ResourceVersion)
	k.running.Go(func() { follower.run(ctx) })
	informed := newInformed(through)
	k.running.Go(func() { informed.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informed.informer.HasSynced) {
		t.Fatal("informer has not synced")
	}
	lists, _ := k.log.lists(t)

	writers := startScribblers(ctx, k.client, k.seed)
	began := time.Now()
	for range *restarts {
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second)))) // also before it has caught up
		r.kill()
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second)))) // how long it is away
		if err := r.launch(); err != nil {
			t.Fatal(err)
		}
	}
	rate := float64(writers.writes.Load()) / time.Since(began).Seconds()
	writers.end()
	compare(t, k.cluster, oracle, follower, informed)
	t.Logf("%d events at %.0f writes per second; the watch was begun %d times, the informer's requests were %d for "+
		"the state and %d to continue",
		len(oracle.events()), rate, follower.begun.Load(), informed.states.Load(), informed.watches.Load())
	judgeLists(t, k.log, lists)
	if n := informed.expired.Load(); n > 0 {
		t.Errorf("%d versions of the informer have expired", n)
	}
}

// killTest is a cluster and programs that read it and are killed.
type killTest struct {
	seed    uint64
	cluster *kubetest.Cluster
	// log has the lists and watches that the API server received.
	log    audit
	direct *rest.Config
	client *kubernetes.Clientset
	// running has the goroutines of the test.
	running sync.WaitGroup
}

func newKillTest(t *testing.T) *killTest {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	k := &killTest{seed: cmp.Or(*seeded, rand.Uint64())}
	t.Logf("seed %d: %d kills", k.seed, *restarts)
	log, args := newAudit(t, `{"level":"Metadata","verbs":["list","watch"]}`)
	k.log, k.cluster = log, kubetest.Start(t, &kubetest.Options{Name: clusterName, APIServerArgs: args})
	k.direct = k.cluster.Config()
	k.direct.QPS = -1
	k.client = kubernetes.NewForConfigOrDie(k.direct)
	return k
}

// observe lists the configmaps, and watches the API server from there on. The context and the
// watch end with the test.
func (k *killTest) observe(t *testing.T) (ctx context.Context, first *corev1.ConfigMapList, oracle *pursuit) {
	t.Helper()
	first, err := k.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		k.running.Wait()
	})
	oracle = newPursuit(t, k.direct, first.ResourceVersion)
	k.running.Go(func() { oracle.run(ctx) })
	return ctx, first, oracle
}

// compare waits until the follower has the last event, and compares the events, and the
// informer with etcd.
func compare(t *testing.T, c *kubetest.Cluster, oracle, follower *pursuit, informed *informed) {
	t.Helper()
	var all, got []string
	different := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := errors.Join(oracle.failure(), follower.failure()); err != nil {
			t.Fatal(err)
		}
		// etcd may still apply a write whose request has ended with its writer.
		want, err := etcdVersions(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		all, got, different = oracle.events(), follower.events(), informed.equals(want)
		if len(got) >= len(all) && different == "" {
			break
		}
	}
	for i := range max(len(all), len(got)) {
		if i >= len(all) || i >= len(got) || all[i] != got[i] {
			t.Fatalf("event %d: through the replica %q, directly %q", i, got[min(i, len(got)):min(i+3, len(got))],
				all[min(i, len(all)):min(i+3, len(all))])
		}
	}
	if different != "" {
		t.Error(different)
	}
}

// etcdVersions returns the versions in etcd of the configmaps that the tests write, by name.
func etcdVersions(ctx context.Context, c *kubetest.Cluster) (map[string]string, error) {
	truth, err := c.Truth(ctx, schema.GroupResource{Resource: "configmaps"})
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, o := range truth.Objects {
		if o.Meta.GetNamespace() == metav1.NamespaceDefault {
			versions[o.Meta.GetName()] = strconv.FormatInt(o.Revision, 10)
		}
	}
	return versions, nil
}

// scribblers write objects as fast as the API server accepts it.
type scribblers struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	writes  atomic.Int64
}

// startScribblers starts four writers. The caller ends them.
func startScribblers(ctx context.Context, client kubernetes.Interface, seed uint64) *scribblers {
	w := &scribblers{}
	ctx, w.stop = context.WithCancel(ctx)
	for n := range 4 {
		w.running.Go(func() { scribble(ctx, client, rand.New(rand.NewPCG(seed, uint64(n+10))), n, &w.writes) })
	}
	return w
}

// end ends the writes.
func (w *scribblers) end() {
	w.stop()
	w.running.Wait()
}

// scribble creates, updates and deletes objects until ctx ends.
func scribble(ctx context.Context, client kubernetes.Interface, rng *rand.Rand, writer int, writes *atomic.Int64) {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for ctx.Err() == nil {
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("w%d-%d", writer, rng.IntN(100)),
				Labels: map[string]string{"writer": strconv.Itoa(writer)},
			},
			Data: map[string]string{"value": fmt.Sprint(rng.Uint64())},
		}
		var err error
		if rng.IntN(5) == 0 {
			err = maps.Delete(ctx, o.Name, metav1.DeleteOptions{})
		} else if _, err = maps.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			_, err = maps.Create(ctx, o, metav1.CreateOptions{})
		}
		if err == nil {
			writes.Add(1)
		}
	}
}

// judgeLists checks that programs with files have not read a state since a moment, in any
// form. They read events again after each start.
func judgeLists(t *testing.T, log audit, before map[string]int) {
	t.Helper()
	lists, watches := log.lists(t)
	for resource, n := range lists {
		if n != before[resource] && resource != "events" {
			t.Errorf("the API server received %d lists of %s", n-before[resource], resource)
		}
	}
	if watches < *restarts/2 { // some programs are killed before they begin one
		t.Errorf("the API server received %d watches from a version", watches)
	}
}

// pursuit is a watch of configmaps that is continued at the last version whenever it ends.
type pursuit struct {
	client *http.Client
	url    string
	begun  atomic.Int64

	mu      sync.Mutex
	version string
	seen    []string
	err     error
}

func newPursuit(t *testing.T, cfg *rest.Config, version string) *pursuit {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &pursuit{
		client:  client,
		url:     cfg.Host + "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=",
		version: version,
	}
}

// run watches until ctx ends, or a version has expired.
func (p *pursuit) run(ctx context.Context) {
	for ctx.Err() == nil && p.failure() == nil {
		if err := p.watch(ctx); err != nil {
			time.Sleep(20 * time.Millisecond) // the server is not there
		}
	}
}

// watch reads the events of one watch. It returns an error if there was none.
func (p *pursuit) watch(ctx context.Context) error {
	p.mu.Lock()
	from := p.version
	p.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+from, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusGone {
			p.fail(fmt.Errorf("watch from %s: %s", from, body))
		}
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	p.begun.Add(1)
	for decoder := json.NewDecoder(resp.Body); ; {
		var e struct {
			Type   string
			Object struct {
				metav1.ObjectMeta `json:"metadata"`
				Code              int
				Message           string
			}
		}
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" {
			if e.Object.Code == http.StatusGone {
				p.fail(fmt.Errorf("watch from %s: %s", from, e.Object.Message))
			}
			return errors.New(e.Object.Message)
		}
		p.mu.Lock()
		p.version = e.Object.ResourceVersion
		p.seen = append(p.seen, e.Type+" "+e.Object.Name+" "+e.Object.ResourceVersion)
		p.mu.Unlock()
	}
}

func (p *pursuit) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *pursuit) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *pursuit) events() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// informed is client-go's informer, whose requests are counted.
type informed struct {
	informer                 cache.SharedIndexInformer
	states, watches, expired atomic.Int64
}

func newInformed(cfg *rest.Config) *informed {
	i := &informed{}
	own := rest.CopyConfig(cfg)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{i, next} })
	factory := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(own), 0,
		informers.WithNamespace(metav1.NamespaceDefault))
	i.informer = factory.Core().V1().ConfigMaps().Informer()
	// It fails only if the informer runs already.
	_ = i.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			i.expired.Add(1)
		}
	})
	return i
}

// equals returns how the informer differs from versions by name, or "".
func (i *informed) equals(want map[string]string) string {
	all := i.informer.GetStore().List()
	if len(all) != len(want) {
		return fmt.Sprintf("the informer has %d objects, etcd %d", len(all), len(want))
	}
	for _, o := range all {
		if o := o.(*corev1.ConfigMap); want[o.Name] != o.ResourceVersion {
			return fmt.Sprintf("the informer has %s at %s, etcd at %q", o.Name, o.ResourceVersion, want[o.Name])
		}
	}
	return ""
}

// counting counts the responses to requests for the state, and to watches that continue.
type counting struct {
	to   *informed
	next http.RoundTripper
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if q := r.URL.Query(); err == nil && strings.HasSuffix(r.URL.Path, "/configmaps") {
		if q.Get("watch") == "" || q.Get("sendInitialEvents") == "true" {
			c.to.states.Add(1)
		} else {
			c.to.watches.Add(1)
		}
	}
	return resp, err
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var writesFlag = flag.Int("writes", 4000, "how many random writes TestReadYourWrites sends")

// writers is how many goroutines write, each with a connection for writes and others for reads.
const writers = 8

// passing is a cluster and a replica of it that passes requests on, for one user with a token.
type passing struct {
	cluster *kubetest.Cluster
	process *program.Process
	// direct and through are for the user, at the API server and at the replica.
	direct, through *rest.Config
}

// startPassing starts a cluster and a replica with --pass-through.
func startPassing(t *testing.T, opts *kubetest.Options, flags ...string) *passing {
	t.Helper()
	opts.Users = append(opts.Users, kubetest.User{Name: "writer", Groups: []string{"system:masters"}})
	return passTo(t, kubetest.Start(t, opts), flags...)
}

// passTo starts a replica with --pass-through of a cluster that has the user.
func passTo(t *testing.T, c *kubetest.Cluster, flags ...string) *passing {
	t.Helper()
	return servePassing(t, c, c.Kubeconfig(), flags...)
}

// servePassing starts a replica with --pass-through, which reaches the cluster with a
// kubeconfig.
func servePassing(t *testing.T, c *kubetest.Cluster, kubeconfig string, flags ...string) *passing {
	t.Helper()
	p := &passing{cluster: c, direct: c.UserConfig("writer")}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if p.process, err = program.Start(ctx, t.TempDir(), append([]string{
		"--kubeconfig", kubeconfig, "--context", c.Name(), "--pass-through",
	}, flags...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.process.Stop()
		if t.Failed() {
			t.Log(p.process.Tail())
		}
	})
	p.through = p.process.Config()
	p.through.Host += "/clusters/" + c.Name()
	p.through.BearerToken = p.direct.BearerToken
	p.direct.QPS = -1
	return p
}

// at returns the access of a user to the replica.
func (p *passing) at(user string) *rest.Config {
	c := rest.CopyConfig(p.through)
	c.BearerToken = p.cluster.UserConfig(user).BearerToken
	return c
}

// client returns a client with connections of its own.
func (p *passing) client(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c = rest.CopyConfig(c)
	// A distinct configuration has a distinct transport in client-go.
	c.NextProtos = []string{"h2", "http/1.1", strconv.Itoa(rand.IntN(1 << 30))}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestReadYourWrites writes random objects through the replica and reads each over another
// connection of the same user at once: by name, in a list, and as the first events of a
// watch. No read may show a state from before the write. Other users write meanwhile.
func TestReadYourWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	p := startPassing(t, &kubetest.Options{Name: "one"}, "--resources", "configmaps")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var others sync.WaitGroup
	others.Go(func() { churn(ctx, t, p.client(t, p.direct)) })
	results := make([]writeResults, writers)
	var writing sync.WaitGroup
	for i := range writers {
		w := &writeTest{
			t: t, random: rand.New(rand.NewPCG(seed, uint64(i))), namespace: fmt.Sprintf("writer-%d", i),
			results: &results[i],
			write:   p.client(t, p.through), read: p.client(t, p.through), known: map[string]*corev1.ConfigMap{},
		}
		writing.Go(func() { w.run(ctx, *writesFlag/writers) })
	}
	writing.Wait()
	cancel()
	others.Wait()
	var all writeResults
	for i := range results {
		all.add(&results[i])
	}
	if all.stale > 0 || all.reads == 0 {
		t.Errorf("%d of %d reads are stale", all.stale, all.reads)
	}
	slices.Sort(all.after)
	slices.Sort(all.plain)
	t.Logf("%d writes, %d reads, %d stale; GET after a write p50 %s p99 %s, without one p50 %s p99 %s", all.writes,
		all.reads, all.stale,
		percentile(all.after, 50), percentile(all.after, 99), percentile(all.plain, 50), percentile(all.plain, 99))
}

func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].Round(time.Microsecond)
}

// churn changes objects until ctx ends, beside the replica.
func churn(ctx context.Context, t *testing.T, c *kubernetes.Clientset) {
	maps := c.CoreV1().ConfigMaps("default")
	for i := 0; ctx.Err() == nil; i++ {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("churn-%d", i%50)},
			Data:       map[string]string{"i": strconv.Itoa(i)},
		}
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		time.Sleep(5 * time.Millisecond) // the pace of the writes
	}
}

// writeResults counts.
type writeResults struct {
	writes, reads, stale int
	// after is how long a GET takes after a write, and plain without one.
	after, plain []time.Duration
}

func (r *writeResults) add(o *writeResults) {
	r.writes, r.reads, r.stale = r.writes+o.writes, r.reads+o.reads, r.stale+o.stale
	r.after, r.plain = append(r.after, o.after...), append(r.plain, o.plain...)
}

// writeTest is one writer.
type writeTest struct {
	t           *testing.T
	random      *rand.Rand
	namespace   string
	write, read *kubernetes.Clientset
	// known are the objects that exist.
	known   map[string]*corev1.ConfigMap
	results *writeResults
}

func (w *writeTest) run(ctx context.Context, n int) {
	if _, err := w.write.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}, metav1.CreateOptions{}); err != nil {
		w.t.Error(err)
		return
	}
	for i := range n {
		name := fmt.Sprintf("m-%d", w.random.IntN(20))
		if err := w.change(ctx, name, strconv.Itoa(i)); err != nil {
			w.t.Errorf("write %d of %s: %v", i, name, err)
			return
		}
		w.results.writes++
		if err := w.check(ctx, name); err != nil {
			w.t.Errorf("read after write %d of %s: %v", i, name, err)
			return
		}
	}
}

// change creates, updates, patches or deletes an object.
func (w *writeTest) change(ctx context.Context, name, value string) (err error) {
	maps := w.write.CoreV1().ConfigMaps(w.namespace)
	now := w.known[name]
	if now == nil {
		w.known[name], err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"value": value},
		}, metav1.CreateOptions{})
		return err
	}
	switch w.random.IntN(3) {
	case 0:
		now = now.DeepCopy()
		now.Data = map[string]string{"value": value}
		w.known[name], err = maps.Update(ctx, now, metav1.UpdateOptions{})
	case 1:
		w.known[name], err = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"value":"`+value+`"}}`),
			metav1.PatchOptions{})
	default:
		delete(w.known, name)
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return err
}

var errStale = errors.New("stale")

// check reads an object after a write, in one of three ways.
func (w *writeTest) check(ctx context.Context, name string) error {
	maps := w.read.CoreV1().ConfigMaps(w.namespace)
	want := w.known[name]
	var err error
	began := time.Now()
	switch w.random.IntN(4) {
	case 0:
		err = w.checkList(ctx, name, want)
	case 1:
		err = w.checkWatch(ctx, name, want)
	default:
		var got *corev1.ConfigMap
		got, err = maps.Get(ctx, name, metav1.GetOptions{})
		w.results.after = append(w.results.after, time.Since(began))
		if apierrors.IsNotFound(err) {
			got, err = nil, nil
		}
		if err == nil {
			err = same(got, want)
		}
		if err == nil {
			began = time.Now()
			_, _ = maps.Get(ctx, name, metav1.GetOptions{})
			w.results.plain = append(w.results.plain, time.Since(began))
		}
	}
	w.results.reads++
	if errors.Is(err, errStale) {
		w.results.stale++
		w.t.Logf("%s of %s at %s, after %s", err, name, time.Now().Format(time.TimeOnly),
			time.Since(began).Round(time.Millisecond))
		return nil
	}
	return err
}

// same returns errStale if what was read is not what was written.
func same(got, want *corev1.ConfigMap) error {
	switch {
	case got == nil && want == nil:
		return nil
	case got == nil:
		return fmt.Errorf("%w: it is missing, and was written at %s", errStale, want.ResourceVersion)
	case want == nil:
		return fmt.Errorf("%w: it is at %s, and was deleted", errStale, got.ResourceVersion)
	case got.ResourceVersion != want.ResourceVersion || got.Data["value"] != want.Data["value"]:
		return fmt.Errorf("%w: it is at %s, and was written at %s", errStale, got.ResourceVersion, want.ResourceVersion)
	}
	return nil
}

func (w *writeTest) checkList(ctx context.Context, name string, want *corev1.ConfigMap) error {
	opts := metav1.ListOptions{}
	if w.random.IntN(2) == 0 {
		opts.ResourceVersion = "0"
	}
	list, err := w.read.CoreV1().ConfigMaps(w.namespace).List(ctx, opts)
	if err != nil {
		return err
	}
	var got *corev1.ConfigMap
	for i := range list.Items {
		if list.Items[i].Name == name {
			got = &list.Items[i]
		}
	}
	if err := same(got, want); err != nil {
		return fmt.Errorf("list at version %q: %w", opts.ResourceVersion, err)
	}
	return nil
}

// checkWatch reads the objects that a watch begins with.
func (w *writeTest) checkWatch(ctx context.Context, name string, want *corev1.ConfigMap) error {
	initial := true
	stream, err := w.read.CoreV1().ConfigMaps(w.namespace).Watch(ctx, metav1.ListOptions{
		SendInitialEvents:    &initial,
		AllowWatchBookmarks:  true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return err
	}
	defer stream.Stop()
	var got *corev1.ConfigMap
	for {
		select {
		case event := <-stream.ResultChan():
			m, ok := event.Object.(*corev1.ConfigMap)
			switch {
			case !ok:
				return fmt.Errorf("event %s %v", event.Type, event.Object)
			case event.Type == watch.Bookmark:
				if err := same(got, want); err != nil {
					return fmt.Errorf("watch: %w", err)
				}
				return nil
			case m.Name == name:
				got = m
			}
		case <-time.After(time.Minute):
			return errors.New("no bookmark")
		}
	}
}

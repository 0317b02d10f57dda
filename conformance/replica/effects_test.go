// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// effectRounds is how many pods each part of TestEffects writes.
const effectRounds = 20

// TestEffects sends writes through the replica whose responses have no version: bindings,
// evictions and deletions of many objects. Reads over another connection of the same user
// must show them at once, and must come from the copy.
func TestEffects(t *testing.T) {
	counters := []kubetest.User{
		{Name: "counter-0", Groups: []string{"system:masters"}},
		{Name: "counter-1", Groups: []string{"system:masters"}},
		{Name: "counter-2", Groups: []string{"system:masters"}},
	}
	p := startPassing(t, &kubetest.Options{Name: "one", Users: counters})
	expect.Soon(t, "the copy is complete", func() bool { return p.readies(t) })
	for name, protobuf := range map[string]bool{"json": false, "protobuf": true} {
		cfg := rest.CopyConfig(p.through)
		if protobuf {
			cfg.ContentType = "application/vnd.kubernetes.protobuf"
		}
		e := &effectTest{T: t, write: p.client(t, cfg), read: p.through, prefix: name}
		e.Run(name+" binding", func(t *testing.T) { e.each(t, e.bind) })
		e.Run(name+" eviction", func(t *testing.T) { e.each(t, e.evict) })
		e.Run(name+" collection", func(t *testing.T) { e.each(t, e.deleteAll) })
		e.Run(name+" empty collection", func(t *testing.T) { e.each(t, e.deleteNone) })
	}
	t.Run("others", func(t *testing.T) { testOthers(t, p) })
	t.Run("replaced", func(t *testing.T) { testReplaced(t, p) })
	t.Run("conflicts", func(t *testing.T) { testConflicts(t, p, counters) })
}

// readies reports whether the copy of the cluster is complete.
func (p *passing) readies(t *testing.T) bool {
	t.Helper()
	client, err := rest.HTTPClientFor(p.through)
	expect.NoError(t, err)
	resp, err := client.Get(p.through.Host + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// effectTest writes and reads pods.
type effectTest struct {
	*testing.T
	write  *kubernetes.Clientset
	read   *rest.Config
	prefix string
}

// each runs a write and the reads after it some times, and checks where the reads come from.
func (e *effectTest) each(t *testing.T, round func(ctx context.Context, i int) (copied bool, err error)) {
	fromCopy := 0
	for i := range effectRounds {
		copied, err := round(t.Context(), i)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if copied {
			fromCopy++
		}
	}
	t.Logf("%d of %d reads come from the copy", fromCopy, effectRounds)
	if fromCopy < effectRounds*9/10 {
		t.Error("too many reads are passed on")
	}
}

// get reads a path of the API over a connection of its own.
func (e *effectTest) get(ctx context.Context, path string, into any) (status int, copied bool, err error) {
	client, err := rest.HTTPClientFor(e.read)
	if err != nil {
		return 0, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.read.Host+path, http.NoBody)
	if err != nil {
		return 0, false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		err = json.NewDecoder(resp.Body).Decode(into)
	}
	return resp.StatusCode, resp.Header.Get("Watershed-Source") == "", err
}

// create creates a pod with a node, or without one.
func (e *effectTest) create(ctx context.Context, namespace, name, node string) error {
	grace := int64(30)
	_, err := e.write.CoreV1().Pods(namespace).Create(ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		}}, metav1.CreateOptions{})
	return err
}

func (e *effectTest) bind(ctx context.Context, i int) (bool, error) {
	name := fmt.Sprintf("%s-bound-%d", e.prefix, i)
	if err := e.create(ctx, "default", name, ""); err != nil {
		return false, err
	}
	if err := e.write.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
	}, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	var pod corev1.Pod
	status, copied, err := e.get(ctx, "/api/v1/namespaces/default/pods/"+name, &pod)
	if err == nil && (status != http.StatusOK || pod.Spec.NodeName != "n") {
		err = fmt.Errorf("%d: pod %s is on node %q", status, name, pod.Spec.NodeName)
	}
	return copied, err
}

// evict evicts pods, every second one of which is gone at once.
func (e *effectTest) evict(ctx context.Context, i int) (bool, error) {
	name, node := fmt.Sprintf("%s-evicted-%d", e.prefix, i), ""
	if i%2 == 0 {
		node = "n"
	}
	if err := e.create(ctx, "default", name, node); err != nil {
		return false, err
	}
	// The copy has the pod then. One that is created and evicted before it is in the copy is
	// passed on for a while.
	if _, err := e.write.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
		return false, err
	}
	if err := e.write.CoreV1().Pods("default").EvictV1(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return false, err
	}
	var pod corev1.Pod
	status, copied, err := e.get(ctx, "/api/v1/namespaces/default/pods/"+name, &pod)
	gone := status == http.StatusNotFound || status == http.StatusOK && pod.DeletionTimestamp != nil
	if err == nil && !gone {
		err = fmt.Errorf("%d: pod %s is not evicted", status, name)
	}
	return copied || status == http.StatusNotFound, err // the cluster confirms a 404
}

func (e *effectTest) deleteAll(ctx context.Context, i int) (bool, error) {
	namespace := fmt.Sprintf("%s-%d", e.prefix, i)
	if _, err := e.write.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	for n := range 3 {
		node := []string{"", "n"}[n%2]
		if err := e.create(ctx, namespace, "p"+strconv.Itoa(n), node); err != nil {
			return false, err
		}
	}
	if err := e.write.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return false, err
	}
	var pods corev1.PodList
	_, copied, err := e.get(ctx, "/api/v1/namespaces/"+namespace+"/pods", &pods)
	for _, pod := range pods.Items {
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("pod %s of namespace %s is not deleted", pod.Name, namespace)
		}
	}
	if err == nil && len(pods.Items) != 1 {
		err = fmt.Errorf("%d pods in namespace %s, want the one that has a node", len(pods.Items), namespace)
	}
	return copied, err
}

// deleteNone deletes a collection that has no objects, after a change of another resource.
func (e *effectTest) deleteNone(ctx context.Context, i int) (bool, error) {
	namespace := fmt.Sprintf("%s-empty-%d", e.prefix, i)
	if _, err := e.write.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	if err := e.write.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return false, err
	}
	var pods corev1.PodList
	_, copied, err := e.get(ctx, "/api/v1/namespaces/"+namespace+"/pods", &pods)
	return copied, err
}

// testOthers reads objects that another client has just created beside the replica. They exist,
// so no read may say that they do not: the garbage collector would delete what they own.
func testOthers(t *testing.T, p *passing) {
	e := &effectTest{T: t, read: p.through}
	maps := p.client(t, p.direct).CoreV1().ConfigMaps("default")
	fromCopy := 0
	for i := range effectRounds {
		name := fmt.Sprintf("other-%d", i)
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		expect.NoError(t, err)
		var m corev1.ConfigMap
		status, copied, err := e.get(t.Context(), "/api/v1/namespaces/default/configmaps/"+name, &m)
		if err != nil || status != http.StatusOK || m.Name != name {
			t.Errorf("%s: %d %v", name, status, err)
		}
		if copied {
			fromCopy++
		}
	}
	t.Logf("%d of %d reads come from the copy", fromCopy, effectRounds)
}

// testReplaced reads the metadata of objects that another client has just replaced beside the
// replica, under the same name. No read may have the UID of the former object: the garbage
// collector would delete what the new one owns.
func testReplaced(t *testing.T, p *passing) {
	maps := p.client(t, p.direct).CoreV1().ConfigMaps("default")
	read, err := metadata.NewForConfig(p.through)
	expect.NoError(t, err)
	replaced := read.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "replaced"}}
	former, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
	expect.NoError(t, err)
	stale := 0
	for range effectRounds {
		expect.Soon(t, "the copy has the object", func() bool {
			got, err := replaced.Get(t.Context(), m.Name, metav1.GetOptions{ResourceVersion: "0"})
			return err == nil && got.UID == former.UID
		})
		expect.NoError(t, maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
		former, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
		expect.NoError(t, err)
		got, err := replaced.Get(t.Context(), m.Name, metav1.GetOptions{})
		expect.NoError(t, err)
		if got.UID != former.UID {
			stale++
		}
	}
	if stale > 0 {
		t.Errorf("%d of %d reads have the UID of the former object", stale, effectRounds)
	}
}

// testConflicts lets several users count in one object, each with retries after a conflict as
// client-go does them. Through the replica about as many attempts must succeed as at the API
// server.
func testConflicts(t *testing.T, p *passing, users []kubetest.User) {
	failed := map[bool]int64{}
	for _, through := range []bool{false, true} {
		at := p.cluster.UserConfig
		if through {
			at = p.at
		}
		name := fmt.Sprintf("counter-%t", through)
		maps := p.client(t, p.direct).CoreV1().ConfigMaps("default")
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"n": "0"},
		}, metav1.CreateOptions{})
		expect.NoError(t, err)
		var counted, conflicts, lost atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for _, user := range users {
			client := p.client(t, at(user.Name))
			all.Go(func() {
				for range 30 {
					err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
						err := increment(t.Context(), client, name)
						if apierrors.IsConflict(err) {
							conflicts.Add(1)
						}
						return err
					})
					switch {
					case err == nil:
						counted.Add(1)
					case apierrors.IsConflict(err):
						lost.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		got, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		expect.NoError(t, err)
		if got.Data["n"] != strconv.FormatInt(counted.Load(), 10) {
			t.Errorf("%s counts, want %d", got.Data["n"], counted.Load())
		}
		t.Logf("through the replica %t: %d counted, %d conflicts, %d given up, in %s", through, counted.Load(),
			conflicts.Load(), lost.Load(), time.Since(began).Round(time.Millisecond))
		failed[through] = lost.Load()
	}
	if failed[true] > 2*failed[false]+int64(5*len(users)) {
		t.Errorf("%d attempts were given up, at the API server %d", failed[true], failed[false])
	}
}

// increment adds 1 to a counter.
func increment(ctx context.Context, client *kubernetes.Clientset, name string) error {
	maps := client.CoreV1().ConfigMaps("default")
	m, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(m.Data["n"])
	if err != nil {
		return err
	}
	m.Data["n"] = strconv.Itoa(n + 1)
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	return err
}

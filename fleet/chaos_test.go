// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var (
	rounds = flag.Int("fleet.rounds", 1, "how many rounds of faults to go through")
	length = flag.Duration("fleet.round", 20*time.Second, "how long things go on in a round")
)

// territory is a cluster, its writer, and the disturbances that it has had.
type territory struct {
	name    string
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
	custom  dynamic.Interface
	user    string // of the fleet's credentials
	in      bool   // whether it is in the fleet
	serial  int

	mu  sync.Mutex
	did map[string]int
}

func (l *territory) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did[what]++
}

// TestChaos writes at random to three clusters with nodes, while custom types, clusters,
// credentials and API servers come and go. After every round it compares the fleet with
// each etcd.
func TestChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	r := newRoster()
	lands := make([]*territory, 3)
	var wg sync.WaitGroup
	for i := range lands {
		name := string(rune('a' + i))
		lands[i] = newTerritory(t, name)
		lands[i].enter(r)
		wg.Go(func() {
			if err := lands[i].cluster.CreateDeployments(t.Context(), "default", 2, 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f := start(t, r, &fleet.Options{
		Logger: quiet,
		Reflector: reflector.Options{
			Backoff: 100 * time.Millisecond, MaxBackoff: 2 * time.Second, Silence: 10 * time.Second,
			Timeout: 20 * time.Second, Park: time.Second,
		},
	})
	watched := []schema.GroupResource{{Resource: "pods"}, {Resource: "configmaps"}, custom("gadgets"), custom("gizmos")}
	witnesses := map[schema.GroupResource]*witness{}
	for _, gr := range watched {
		witnesses[gr] = watchView(t, gr.String(), fleet.OfResource[*wire.Object](f, gr))
	}
	for round := range *rounds {
		began := time.Now()
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		ctx, cancel := context.WithTimeout(t.Context(), *length)
		for _, l := range lands {
			l.did = map[string]int{}
			own := rand.New(rand.NewPCG(rng.Uint64(), 1))
			other := rand.New(rand.NewPCG(rng.Uint64(), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					l.write(ctx, own)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					l.befall(t, r, other)
				}
			})
		}
		wg.Wait()
		cancel()
		for _, l := range lands {
			l.enter(r)
			if err := l.cluster.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		agreed := time.Now()
		for _, l := range lands {
			expect.Eventually(t, 2*time.Minute, func() error { return l.unlike(t.Context(), f) })
		}
		for gr, w := range witnesses {
			expect.Eventually(t, 30*time.Second, func() error {
				return w.behind(fleet.OfResource[*wire.Object](f, gr))
			})
		}
		t.Logf("round %d: equal to each etcd %v after the last of %v; %s", round+1,
			time.Since(agreed).Round(time.Millisecond),
			time.Since(began).Round(time.Second), deeds(lands))
		if t.Failed() {
			t.Fatalf("after round %d of WATERSHED_SEED=%d", round+1, seed)
		}
	}
	for _, m := range f.Members() {
		s := m.Status()
		t.Logf("%s: %s, %d resources, %d objects", m.Name(), s.State, s.Resources, s.Objects)
	}
	if n := f.Stats().Undecodable; n > 0 {
		t.Errorf("%d objects could not be decoded", n)
	}
}

func deeds(lands []*territory) string {
	sum := map[string]int{}
	for _, l := range lands {
		for what, n := range l.did {
			sum[what] += n
		}
	}
	return fmt.Sprint(sum)
}

func newTerritory(t *testing.T, name string) *territory {
	l := &territory{name: name, user: "admin", did: map[string]int{}}
	l.cluster = kubetest.Start(t, &kubetest.Options{
		Name: name, Nodes: 2, Users: []kubetest.User{{Name: "other", Groups: []string{"system:masters"}}},
	})
	var err error
	if l.client, err = kubernetes.NewForConfig(l.cluster.Config()); err != nil {
		t.Fatal(err)
	}
	if l.custom, err = dynamic.NewForConfig(l.cluster.Config()); err != nil {
		t.Fatal(err)
	}
	return l
}

// enter adds the cluster to the fleet, with its current credentials.
func (l *territory) enter(r *roster) {
	l.in = true
	r.set(l.name, l.cluster.UserConfig(l.user))
}

// befall disturbs the cluster once, and waits.
func (l *territory) befall(t *testing.T, r *roster, rng *rand.Rand) {
	what := ""
	var err error
	plural := []string{"gadgets", "gizmos"}[rng.IntN(2)]
	switch n := rng.IntN(10); {
	case !l.in:
		what = "join"
		l.enter(r)
	case n == 0:
		what, l.in = "leave", false
		r.set(l.name, nil)
	case n < 3:
		what = "rotate"
		l.user = map[string]string{"admin": "other", "other": "admin"}[l.user]
		l.enter(r)
	case n == 3:
		what = "kill"
		l.cluster.APIServer.Kill()
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond) // how long it is away
		err = l.cluster.APIServer.Start(t.Context())
	case n < 6:
		what = "remove type"
		_, _ = l.cluster.Kubectl(t.Context(), "delete", "crd", plural+".example.com", "--wait=false")
	default:
		what = "define type"
		versions := [][]string{{"v1"}, {"v1", "v1alpha1"}, {"v1alpha1", "v1"}, {"v1alpha1"}}[rng.IntN(4)]
		scope := "Namespaced"
		if plural == "gizmos" && rng.IntN(2) == 0 {
			scope = "Cluster"
		}
		// It may exist with another scope, or be being deleted: then nothing happens.
		_, _ = l.cluster.KubectlInput(t.Context(), crd(plural, scope, versions...), "apply", "--server-side",
			"--force-conflicts", "-f", "-")
	}
	if err != nil {
		t.Errorf("%s: %s: %v", l.name, what, err)
	}
	l.count(what)
	time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // until the next event
}

// write changes an object. Its result does not matter: the test compares with etcd.
func (l *territory) write(ctx context.Context, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	l.serial++
	name := fmt.Sprintf("x%d", rng.IntN(30))
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"serial":"%d"}}}`, l.serial)
	core := l.client.CoreV1()
	var err error
	switch rng.IntN(8) {
	case 0, 1:
		_, err = core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
	case 2:
		err = core.ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{})
	case 3:
		_, err = core.ConfigMaps("default").Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{})
	case 4:
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, rng.IntN(8))
		_, err = l.client.AppsV1().Deployments("default").Patch(ctx, fmt.Sprintf("deployment-%d", rng.IntN(2)),
			types.StrategicMergePatchType, replicas, metav1.PatchOptions{})
	default:
		plural := []string{"gadgets", "gizmos"}[rng.IntN(2)]
		version := []string{"v1", "v1alpha1"}[rng.IntN(2)]
		resource := l.custom.Resource(custom(plural).WithVersion(version))
		kind := strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + version, "kind": kind,
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"serial": strconv.Itoa(l.serial)}}}
		into := dynamic.ResourceInterface(resource)
		if plural == "gadgets" || rng.IntN(2) == 0 {
			into = resource.Namespace("default")
		}
		if _, err = into.Create(ctx, obj, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			_, err = into.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	if err == nil {
		l.count("write")
	}
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && err != nil {
		time.Sleep(50 * time.Millisecond) // the server may be down: do not try without a pause
	}
}

// unlike returns how the mirrored resources of the cluster differ from its etcd.
func (l *territory) unlike(ctx context.Context, f *fleet.Fleet) error {
	m, ok := f.Member(l.name)
	if !ok {
		return errors.New(l.name + " is not a member")
	}
	if s := m.Status(); s.State != fleet.Live {
		return fmt.Errorf("%s is %s: %+v%s", l.name, s.State, s, l.mend(ctx, s.Err))
	}
	served, err := m.Cluster().Resources(ctx)
	if err != nil {
		return err
	}
	there := map[schema.GroupResource]bool{}
	for _, r := range served {
		there[r.GroupResource()] = true
	}
	for _, r := range f.Resources() {
		if !there[r] {
			if n := fleet.OfResource[*wire.Object](f, r).In(l.name).Len(); n > 0 {
				return fmt.Errorf("%s: %d objects of %s, which is not served", l.name, n, r)
			}
		}
	}
	for r := range there {
		switch {
		case r.Group == "example.com", r.Resource == "pods" && r.Group == "", r.Resource == "configmaps",
			r.Resource == "deployments",
			r.Resource == "replicasets", r.Resource == "nodes" && r.Group == "",
			r.Resource == "customresourcedefinitions", r.Resource == "serviceaccounts":
			if err := unlike(ctx, f, l.name, l.cluster, r); err != nil {
				return fmt.Errorf("%w%s%s", err, l.explain(ctx, m, r), l.unmix(ctx, r))
			}
		}
	}
	return nil
}

// mend removes an object that a request wrote at a key of the old scope while its type
// was being removed. With the other scope kube-apiserver cannot read it, and never serves
// the type again.
func (l *territory) mend(ctx context.Context, err error) string {
	if err == nil || !strings.Contains(err.Error(), "couldn't compute key") {
		return ""
	}
	l.count("mend")
	return fmt.Sprintf("; mended: %v", l.cluster.Erase(ctx, custom("gizmos")))
}

// unmix removes the objects of a type if some have a namespace and others have none: a
// request wrote them while the type was being replaced by one with another scope.
// kube-apiserver's watch cache then has one object for two keys.
func (l *territory) unmix(ctx context.Context, r schema.GroupResource) string {
	truth, err := l.cluster.Truth(ctx, r)
	if err != nil {
		return "; " + err.Error()
	}
	namespaced := 0
	for _, o := range truth.Objects {
		if o.Meta.GetNamespace() != "" {
			namespaced++
		}
	}
	if namespaced == 0 || namespaced == len(truth.Objects) {
		return ""
	}
	l.count("mend")
	return fmt.Sprintf("; mended %d objects with and %d without a namespace: %v", namespaced,
		len(truth.Objects)-namespaced, l.cluster.Erase(ctx, r))
}

// explain describes a resource as the member and the server see it.
func (l *territory) explain(ctx context.Context, m *fleet.Member, r schema.GroupResource) string {
	text := "\nnot mirrored"
	for _, s := range m.Resources() {
		if s.Resource.GroupResource() == r {
			text = fmt.Sprintf("\nmirrored as %s: %+v", s.Resource.Version, s.Status)
		}
	}
	out, err := l.cluster.Kubectl(ctx, "get", r.String(), "-A", "--no-headers")
	text += fmt.Sprintf("\nthe server has %d, %v", strings.Count(out, "\n"), err)
	if r.Group == "example.com" {
		out, err := l.cluster.Kubectl(ctx, "get", "crd", r.String(), "-o",
			"jsonpath={.metadata.deletionTimestamp} {.metadata.uid} {.spec.scope} {.status}")
		text += fmt.Sprintf("\nits definition: %s %v", out, err)
	}
	return text
}

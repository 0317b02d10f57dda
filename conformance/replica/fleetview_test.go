// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// pair is two clusters and a replica of both.
type pair struct {
	names    []string
	clusters []*kubetest.Cluster
	clients  []*kubernetes.Clientset

	dir, kubeconfig string
	process         *program.Process
	fleet           *subject
}

// TestFleetViews reads two clusters as one, in every possible way. The tests share the
// clusters, and each has its own namespace.
func TestFleetViews(t *testing.T) {
	if os.Getenv(subjectVariable) == "server" {
		t.Skip("kube-apiserver has no view of two clusters")
	}
	p := newPair(t)
	for _, one := range []struct {
		name string
		test func(*testing.T, *pair)
	}{
		{"List", testFleetList},
		{"Pages", testFleetPages},
		{"Tokens", testFleetTokens},
		{"Expired", testFleetExpired},
		{"Get", testFleetGet},
		{"Consistent", testFleetConsistent},
		{"Kubectl", testFleetKubectl},
		{"Unmirrored", testFleetUnmirrored},
		{"Consent", testFleetConsent},
		{"Watch", testFleetWatch},
		{"WatchVersions", testFleetWatchVersions},
		{"OtherVersions", testFleetOtherVersions},
		{"Informers", testFleetInformers}, // restarts the replica
		{"Members", testFleetMembers},
		{"Stale", testFleetStale},
	} {
		start := time.Now()
		if !t.Run(one.name, func(t *testing.T) { one.test(t, p) }) {
			t.Logf("the end of watershed's log:\n%s", p.process.Tail())
		}
		t.Logf("%s took %.1fs", one.name, time.Since(start).Seconds())
	}
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{names: []string{"east", "west"}, dir: t.TempDir()}
	for _, name := range p.names {
		c := kubetest.Start(t, &kubetest.Options{Name: name})
		cfg := c.Config()
		cfg.QPS = -1
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.clusters, p.clients = append(p.clusters, c), append(p.clients, client)
	}
	p.kubeconfig = filepath.Join(p.dir, "kubeconfig")
	p.join(t, p.clusters...)
	p.start(t)
	t.Cleanup(func() { p.process.Stop() })
	return p
}

// join sets the clusters that the replica has.
func (p *pair) join(t *testing.T, clusters ...*kubetest.Cluster) {
	t.Helper()
	if err := kubetest.WriteKubeconfig(p.kubeconfig, clusters...); err != nil {
		t.Fatal(err)
	}
}

// start starts the replica and waits until it has both clusters.
func (p *pair) start(t *testing.T) {
	t.Helper()
	process, err := startReplica(t.Context(), p.dir, p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p.process = process
	if p.fleet, err = newSubject("fleet", process.Config(), "/fleet"); err != nil {
		t.Fatal(err)
	}
	p.fleet.header = keyedByCluster
	p.await(t, func(ctx context.Context) error {
		a := p.fleet.send(ctx, request{Method: http.MethodGet, URI: "/api/v1/configmaps?limit=1"})
		if warnings := a.header.Values("Warning"); a.err != nil || a.code != http.StatusOK || len(warnings) > 0 {
			return fmt.Errorf("%d %w %q %s", a.code, a.err, warnings, a.body)
		}
		return nil
	})
}

// await waits until a function returns no error.
func (p *pair) await(t *testing.T, what func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := expect.Until(ctx, func() error { return what(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// namespace creates a namespace in both clusters.
func (p *pair) namespace(t *testing.T, name string) {
	t.Helper()
	for _, c := range p.clients {
		_, err := c.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// put creates or changes a config map.
func (p *pair) put(
	ctx context.Context, cluster int, namespace, name string, labels map[string]string, data string,
) error {
	maps := p.clients[cluster].CoreV1().ConfigMaps(namespace)
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Data:       map[string]string{"is": data},
	}
	_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, m, metav1.CreateOptions{})
	}
	return err
}

// fill creates the given number of config maps in each cluster. The first third has the
// same names in both.
func (p *pair) fill(t *testing.T, namespace string, n int) {
	t.Helper()
	p.namespace(t, namespace)
	for c := range p.clients {
		for i := range n {
			if err := p.put(t.Context(), c, namespace, p.nameOf(c, i, n), colorOf(i), "0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.settled(t, namespace)
}

func (p *pair) nameOf(cluster, i, n int) string {
	if i < n/3 {
		return fmt.Sprintf("both-%02d", i)
	}
	return fmt.Sprintf("%s-%02d", p.names[cluster], i)
}

func colorOf(i int) map[string]string {
	return []map[string]string{{"color": "red"}, {"color": "blue"}, nil}[i%3]
}

// change makes a random change to one of n names in a namespace.
func (p *pair) change(ctx context.Context, rng *rand.Rand, namespace string, n int) error {
	cluster := rng.IntN(len(p.clients))
	name := p.nameOf(cluster, rng.IntN(n), n)
	if rng.IntN(3) == 0 {
		err := p.clients[cluster].CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return p.put(ctx, cluster, namespace, name, colorOf(rng.IntN(3)), strconv.Itoa(rng.Int()))
}

// truth returns the objects of both clusters in a namespace: cluster, name and version of
// each, in the order of a list.
func (p *pair) truth(ctx context.Context, namespace, selector string) ([]string, error) {
	var all []string
	for i, c := range p.clients {
		list, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		for _, m := range list.Items {
			all = append(all, identity(p.names[i], &m.ObjectMeta))
		}
	}
	return all, nil
}

func identity(cluster string, m *metav1.ObjectMeta) string {
	return cluster + "/" + m.Namespace + "/" + m.Name + "@" + m.ResourceVersion
}

// keyedByCluster is the header of a client that distinguishes objects of different
// clusters.
var keyedByCluster = http.Header{"Watershed-Fleet": {"keyed-by-cluster"}}

// clusterAnnotation has the cluster of an object of the fleet.
const clusterAnnotation = "watershed.dev/cluster"

// page is a list of the fleet.
type page struct {
	metav1.ListMeta `json:"metadata"`
	Items           []metav1.PartialObjectMetadata `json:"items"`
}

// identities returns the identities of a list's objects, which must have annotations.
func (l *page) identities() []string {
	var all []string
	for i := range l.Items {
		m := &l.Items[i].ObjectMeta
		all = append(all, identity(m.Annotations[clusterAnnotation], m))
	}
	return all
}

// list reads a list of config maps. An error is the status, if the response is one.
func (p *pair) list(ctx context.Context, namespace string, query url.Values) (*page, error) {
	return p.read(ctx, "/api/v1/namespaces/"+namespace+"/configmaps", query)
}

func (p *pair) read(ctx context.Context, path string, query url.Values) (*page, error) {
	a := p.fleet.send(ctx, request{
		Method: http.MethodGet, URI: path + "?" + query.Encode(), Accept: "application/json",
	})
	if a.err != nil {
		return nil, a.err
	}
	if a.code != http.StatusOK {
		return nil, statusError(a)
	}
	var l page
	return &l, json.Unmarshal(a.body, &l)
}

// statusError returns the status of a response as an error.
func statusError(a *answer) error {
	err := &apierrors.StatusError{}
	if json.Unmarshal(a.body, &err.ErrStatus) != nil || err.ErrStatus.Kind != "Status" ||
		int(err.ErrStatus.Code) != a.code {
		return fmt.Errorf("%d without a status: %s", a.code, a.body)
	}
	return err
}

// settled waits until the replica has the objects of the clusters in a namespace, and
// returns the list.
func (p *pair) settled(t *testing.T, namespace string) *page {
	t.Helper()
	var l *page
	p.await(t, func(ctx context.Context) error {
		want, err := p.truth(ctx, namespace, "")
		if err != nil {
			return err
		}
		if l, err = p.list(ctx, namespace, nil); err != nil {
			return err
		}
		if got := l.identities(); !slices.Equal(got, want) {
			return fmt.Errorf("the fleet has\n%s\nand the clusters\n%s", strings.Join(got, " "),
				strings.Join(want, " "))
		}
		return nil
	})
	return l
}

// newRandom has a new seed every time, and logs it.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

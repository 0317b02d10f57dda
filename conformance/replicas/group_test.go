// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

var (
	groupRounds = flag.Int("group.rounds", 3, "how many faults TestGroup has")
	groupClocks = flag.Bool("group.clocks", false,
		"give the replicas of TestGroup wall clocks that are up to an hour off, which needs a build of its own")
)

const (
	groupNamespace = "default"
	groupName      = "chaos"
	// simulatedClusters is how many simulated clusters there are, and simulatedPods how many pods each
	// has, of which the first ones, changedPods, change.
	simulatedClusters, simulatedPods, changedPods = 10, 2000, 200
	// behind is the delay of the second real cluster at the second replica.
	behind = 150 * time.Millisecond
)

// replicaGroup is two replicas of two real clusters and of simulated ones. Each has the first cluster
// twice: directly, and as the group cluster with the Leases, through a proxy of its own. So it has
// changes while it cannot renew its Lease.
type replicaGroup struct {
	*pair
	rng      *rand.Rand
	real     [2]*kubetest.Cluster
	clients  [2]*kubernetes.Clientset
	servers  *simulated.Server
	networks [2]*network
	ledger   *ledger
	config   *rest.Config // of the owner at the fleet, through the load balancer
	absent   string       // the cluster that is not in the kubeconfigs
}

// TestGroup has clients of all kinds that go between two replicas while the replicas are killed, ended,
// stopped, robbed of their Leases, replaced, and separated from each other, from the group cluster and
// from their clusters, and while clusters leave and join. No version may be issued by two processes, and
// no client that has presented a version gets a lower one. No read is older than a write of the same
// user without a warning. In the end all clients have the objects of etcd and of the simulation.
func TestGroup(t *testing.T) {
	g := startGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var readers []*groupClient
	for range 6 {
		client, err := newFleetClient(g.balancer, g.config)
		expect.NoError(t, err)
		one := &groupClient{ledger: g.ledger, fleetClient: client, rng: g.random()}
		readers = append(readers, one)
		running.Go(func() { one.run(ctx) })
	}
	informers := g.startInformers(ctx, &running)
	pages := g.startPages(ctx, &running)
	writing, end := context.WithCancel(ctx)
	var writers sync.WaitGroup
	users := g.startWriters(writing, &writers)
	g.startChanges(writing, &writers)

	g.healthy()
	users.calm.Store(true)
	faults := g.faults()
	var order []int
	for round := range *groupRounds {
		if len(order) == 0 {
			order = g.rng.Perm(len(faults))
		}
		i, fault := g.rng.IntN(2), faults[order[0]]
		order = order[1:]
		t.Logf("round %d: replica %d is %s", round+1, i, fault.name)
		users.calm.Store(false)
		fault.happen(i)
		g.healthy()
		users.calm.Store(true)
		wait(t.Context(), time.Second) // a period of requests without a fault
	}
	end()
	writers.Wait()
	g.converge(readers)
	for _, one := range informers {
		expect.Eventually(t, patience, func() error { return one.differs(ctx) })
	}
	g.convergePods()
	for _, text := range g.ledger.check() {
		t.Error(text)
	}
	l := g.ledger
	t.Logf("%d versions of %d slots; %d presented, %d of them expired", len(l.seen), len(l.spans), l.presented,
		l.expired)
	t.Logf("writers: %s", users)
	t.Logf("paged lists: %s", pages)
	if l.presented == 0 || l.expired == 0 {
		t.Error("no version was presented to a member that had not issued it")
	}
	for _, text := range append(users.lacks(), pages.lacks()...) {
		t.Error(text)
	}
}

// startGroup starts the clusters and the replicas.
func startGroup(t *testing.T) *replicaGroup {
	g := &replicaGroup{rng: newRandom(t),
		ledger: &ledger{spans: map[uint64]map[*program.Process]*[2]uint64{}, seen: map[uint64]bool{}}}
	var users []kubetest.User
	for i := range groupWriters {
		users = append(users, kubetest.User{Name: writerName(i), Groups: []string{"system:masters"}})
	}
	for i, name := range []string{"direct", "second"} {
		g.real[i] = kubetest.Start(t, &kubetest.Options{Name: name, Users: users})
		g.clients[i] = kubernetes.NewForConfigOrDie(g.real[i].Config())
	}
	var err error
	g.servers, err = simulated.New(&simulated.Options{Clusters: simulatedClusters, Pods: simulatedPods})
	expect.NoError(t, err)
	t.Cleanup(g.servers.Close)
	g.pair = newPair(t)
	for i := range g.networks {
		g.networks[i] = newNetwork(t, g)
		// The copies of one replica are behind, so a read through it is older than a write that it does not know.
		g.networks[i].proxies["second"].Delay(time.Duration(i) * behind)
		g.startMember(i)
	}
	g.config = g.balancer.config(g.at(0), "")
	g.awaitReady()
	return g
}

// newRandom has a new seed every time, and logs it.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		expect.NoError(t, err)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// random returns a generator for a goroutine.
func (g *replicaGroup) random() *rand.Rand { return rand.New(rand.NewPCG(g.rng.Uint64(), 0)) }

// startMember starts a replica.
func (g *replicaGroup) startMember(i int) {
	g.t.Helper()
	binary, err := program.Binary()
	expect.NoError(g.t, err)
	var env []string
	if *groupClocks {
		if binary, err = clockBinary(); err != nil {
			g.t.Fatal(err)
		}
		shift := g.rng.IntN(2*mostShift+1) - mostShift
		env = []string{fmt.Sprintf("%s=%d", clockVariable, shift)}
		g.t.Logf("the clock of replica %d is %d s ahead", i, shift)
	}
	g.networks[i].writeKubeconfig(g.absent)
	listen, address := g.networks[i].newPeer()
	g.start(i, binary, env, "--kubeconfig", g.networks[i].kubeconfig, "--resources", "configmaps,pods,namespaces",
		"--pass-through", "--replica-group", groupName, "--group-cluster", "leases", "--group-namespace",
		groupNamespace, "--group-listen", listen, "--group-address", address)
}

// groupMember is a process with a client of its owner, past the load balancer.
type groupMember struct {
	*program.Process
	client *http.Client
}

// member returns a present process.
func (g *replicaGroup) member(i int) *groupMember {
	g.t.Helper()
	p := g.at(i)
	client, err := rest.HTTPClientFor(p.Config())
	expect.NoError(g.t, err)
	return &groupMember{p, client}
}

// get sends a request, and returns the warnings of the response. It decodes the body.
func (m *groupMember) get(ctx context.Context, path string, into any) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.Address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	resp, err := m.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is %s", path, resp.Status)
	}
	return resp.Header.Values("Warning"), json.NewDecoder(resp.Body).Decode(into)
}

// membership is the part of the document at /clusters that the test reads.
type membership struct {
	Slot    int
	Renewed bool
	Peers   []struct {
		Slot  int
		State string
	}
}

// membershipOf returns how a replica sees its group.
func (m *groupMember) membershipOf(ctx context.Context) (membership, error) {
	var document struct {
		Process struct{ Membership membership }
	}
	_, err := m.get(ctx, "/clusters", &document)
	return document.Process.Membership, err
}

// healthy waits until both replicas list all clusters and are connected.
func (g *replicaGroup) healthy() {
	g.t.Helper()
	for i := range g.replicas {
		m := g.member(i)
		expect.Eventually(g.t, patience, func() error {
			is, err := m.membershipOf(g.t.Context())
			if err != nil {
				return err
			}
			if !is.Renewed || len(is.Peers) == 0 {
				return fmt.Errorf("replica %d has %+v; log:\n%s", i, is, m.Tail())
			}
			var list struct{}
			warnings, err := m.get(g.t.Context(), configMapsOfGroup, &list)
			if len(warnings) > 0 {
				err = fmt.Errorf("list has the warnings %q; log:\n%s", warnings, m.Tail())
			}
			return err
		})
		closeIdle(m.client)
	}
	// Reads of users have no warnings when the replicas know of each other's writes.
	for i := range g.replicas {
		config := g.at(i).Config()
		config.Host += "/clusters/direct"
		config.BearerToken = g.real[0].UserConfig(writerName(0)).BearerToken
		client, err := rest.HTTPClientFor(config)
		expect.NoError(g.t, err)
		m := &groupMember{g.at(i), client}
		expect.Eventually(g.t, patience, func() error {
			var list struct{}
			warnings, err := m.get(g.t.Context(), "/clusters/direct"+configMapsOfCluster, &list)
			if len(warnings) > 0 {
				err = fmt.Errorf("a user's list has the warnings %q; log:\n%s", warnings, m.Tail())
			}
			return err
		})
		closeIdle(client)
	}
	g.awaitReady()
}

// converge waits until all clients have the config maps that are in etcd.
func (g *replicaGroup) converge(clients []*groupClient) {
	g.t.Helper()
	var want []string
	for i, names := range [][]string{{"direct", "leases"}, {"second"}} {
		truth, err := g.real[i].Truth(g.t.Context(), schema.GroupResource{Resource: "configmaps"})
		expect.NoError(g.t, err)
		for _, o := range truth.Objects {
			if o.Meta.GetNamespace() != groupNamespace {
				continue
			}
			for _, name := range names {
				want = append(want, name+"/"+o.Meta.GetName()+"@"+o.Meta.GetResourceVersion())
			}
		}
	}
	for n, one := range clients {
		expect.Eventually(g.t, patience, func() error {
			return difference(fmt.Sprintf("client %d", n), one.has(), want)
		})
	}
}

// convergePods compares the pods of the fleet, listed page by page, with the simulation.
func (g *replicaGroup) convergePods() {
	g.t.Helper()
	var want []string
	for i := range g.servers.Clusters() {
		c := g.servers.Cluster(i)
		for n := range c.Pods() {
			if pod := c.Pod(n); pod != nil {
				want = append(want, c.Name()+"/"+pod.Namespace+"/"+pod.Name+"@"+pod.ResourceVersion)
			}
		}
	}
	for i := range g.replicas {
		client, err := newFleetClient(g.balancer, g.at(i).Config())
		expect.NoError(g.t, err)
		expect.Eventually(g.t, patience, func() error {
			list, err := (&pageReader{fleetClient: client, path: "/fleet/api/v1/pods"}).read(g.t.Context())
			if err != nil {
				return err
			}
			return difference(fmt.Sprintf("pods of replica %d", i), list.identities(), want)
		})
		closeIdle(client.client)
	}
}

// startChanges changes config maps and pods at random, beside the replicas.
func (g *replicaGroup) startChanges(ctx context.Context, running *sync.WaitGroup) {
	for i := range g.clients {
		rng := g.random()
		running.Go(func() {
			for ctx.Err() == nil {
				if err := changeConfigMap(ctx, g.clients[i], rng); err != nil && ctx.Err() == nil {
					g.t.Error(err)
					return
				}
				wait(ctx, 40*time.Millisecond) // a period of changes
			}
		})
	}
	rng := g.random()
	running.Go(func() {
		for ctx.Err() == nil {
			c, n := g.servers.Cluster(rng.IntN(simulatedClusters)), rng.IntN(changedPods)
			if change := rng.IntN(6); change == 0 {
				c.Delete(n)
			} else if change > 1 || c.Create(n) == 0 {
				c.Touch(n)
			}
			wait(ctx, 20*time.Millisecond) // a period of changes
		}
	})
}

// wait waits for a period, or until ctx ends.
func wait(ctx context.Context, period time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(period):
	}
}

// changeConfigMap creates, changes or deletes a config map.
func changeConfigMap(ctx context.Context, client *kubernetes.Clientset, rng *rand.Rand) error {
	configMaps := client.CoreV1().ConfigMaps(groupNamespace)
	name := fmt.Sprintf("map-%d", rng.IntN(20))
	if rng.IntN(4) == 0 {
		return ignoreNotFound(configMaps.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string]string{"is": strings.Repeat("x", rng.IntN(100))}}
	_, err := configMaps.Update(ctx, m, metav1.UpdateOptions{})
	if ignoreNotFound(err) == nil && err != nil {
		_, err = configMaps.Create(ctx, m, metav1.CreateOptions{})
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var groupRounds = flag.Int("group.rounds", 4, "how many faults TestGroup has")

const (
	groupNamespace = "default"
	groupName      = "chaos"
)

// replicaGroup is two replicas of a real cluster. Each has the cluster twice: directly, and as the
// group cluster with the Leases, through a proxy that can be cut. So it has changes while it cannot
// renew its Lease.
type replicaGroup struct {
	t       *testing.T
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
	proxies [2]*kubetest.Proxy
	dirs    [2]string
	ledger  *ledger

	mu      sync.Mutex
	members [2]*groupMember
}

// TestGroup has clients that go between two replicas, present the versions that they have, and apply
// what they receive, while the replicas are killed, ended, stopped, robbed of their Leases and cut
// off from the group cluster. No version may be issued by two processes, no client that has presented
// a version gets a lower one, and all clients have the cluster's objects in the end.
func TestGroup(t *testing.T) {
	rng := newRandom(t)
	c := kubetest.Start(t, &kubetest.Options{Name: "direct"})
	g := &replicaGroup{t: t, cluster: c, client: kubernetes.NewForConfigOrDie(c.Config()),
		ledger: &ledger{spans: map[uint64]map[*groupMember]*[2]uint64{}, seen: map[uint64]bool{}}}
	for i := range g.members {
		g.proxies[i], g.dirs[i] = c.Proxy(t), t.TempDir()
		g.start(i)
	}
	t.Cleanup(func() {
		for _, m := range g.both() {
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			m.stop()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var clients []*groupClient
	for range 6 {
		one := &groupClient{ledger: g.ledger, members: g.both, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
		clients = append(clients, one)
		running.Go(func() { one.run(ctx) })
	}
	writing, end := context.WithCancel(ctx)
	changes := rand.New(rand.NewPCG(rng.Uint64(), 0))
	var writer sync.WaitGroup
	writer.Go(func() { g.write(writing, changes) })

	g.healthy()
	faults := []func(i int){g.kill, g.end, g.freeze, g.rob, g.cut}
	names := []string{"killed", "ended", "stopped while its Lease is deleted", "robbed of its Lease", "cut off"}
	var order []int
	for range *groupRounds {
		if len(order) == 0 {
			order = rng.Perm(len(faults))
		}
		i, fault := rng.IntN(2), order[0]
		order = order[1:]
		t.Logf("replica %d is %s", i, names[fault])
		faults[fault](i)
		g.healthy()
	}
	end()
	writer.Wait()
	g.converge(clients)
	for _, text := range g.ledger.check() {
		t.Error(text)
	}
	l := g.ledger
	t.Logf("%d versions of %d slots; %d presented, %d of them expired", len(l.seen), len(l.spans), l.presented,
		l.expired)
	if l.presented == 0 || l.expired == 0 {
		t.Error("no version was presented to a member that had not issued it")
	}
}

// both returns the present processes.
func (g *replicaGroup) both() []*groupMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members[:])
}

// start starts a replica.
func (g *replicaGroup) start(i int) {
	g.t.Helper()
	path := filepath.Join(g.dirs[i], "kubeconfig")
	k := clientcmdapi.NewConfig()
	for name, config := range map[string]string{
		"direct": g.cluster.Config().Host, "leases": g.proxies[i].Config(g.cluster.Config()).Host,
	} {
		own := g.cluster.Config()
		k.Clusters[name] = &clientcmdapi.Cluster{Server: config, CertificateAuthorityData: own.CAData}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: own.BearerToken, ClientCertificateData: own.CertData,
			ClientKeyData: own.KeyData}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	expect.NoError(g.t, clientcmd.WriteToFile(*k, path))
	p, err := startServe(g.t.Context(), g.dirs[i], "--kubeconfig", path, "--resources", "configmaps",
		"--replica-group", groupName, "--group-cluster", "leases", "--group-namespace", groupNamespace)
	expect.NoError(g.t, err)
	m, err := newGroupMember(p)
	expect.NoError(g.t, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[i] = m
}

// slotOf returns the slot of a replica, and false if it does not renew its Lease.
func (m *groupMember) slotOf(ctx context.Context) (slot int, renewed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := m.get(ctx, "/clusters", nil)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	var document struct {
		Process struct {
			Membership struct {
				Slot    int
				Renewed bool
				Peers   []struct{ Slot int }
			}
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&document)
	is := document.Process.Membership
	return is.Slot, is.Renewed && len(is.Peers) > 0, err
}

// healthy waits until both replicas list both clusters and see each other.
func (g *replicaGroup) healthy() {
	g.t.Helper()
	for _, m := range g.both() {
		expect.Eventually(g.t, patience, func() error {
			if _, renewed, err := m.slotOf(g.t.Context()); err != nil || !renewed {
				return fmt.Errorf("the Lease is renewed: %t, %w; log:\n%s", renewed, err, m.tail())
			}
			ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
			defer cancel()
			resp, err := m.get(ctx, configMapsOfGroup, nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if warnings := resp.Header.Values("Warning"); resp.StatusCode != http.StatusOK || len(warnings) > 0 {
				return fmt.Errorf("list is %s, %v", resp.Status, warnings)
			}
			return nil
		})
	}
}

// write changes config maps at random.
func (g *replicaGroup) write(ctx context.Context, rng *rand.Rand) {
	configMaps := g.client.CoreV1().ConfigMaps(groupNamespace)
	for ctx.Err() == nil {
		name := fmt.Sprintf("map-%d", rng.IntN(20))
		var err error
		if rng.IntN(4) == 0 {
			err = configMaps.Delete(ctx, name, metav1.DeleteOptions{})
		} else {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name},
				Data: map[string]string{"is": fmt.Sprint(rng.Int())}}
			if _, err = configMaps.Update(ctx, m, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
				_, err = configMaps.Create(ctx, m, metav1.CreateOptions{})
			}
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			g.t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // a period of changes
		}
	}
}

// The faults of a replica.

func (g *replicaGroup) kill(i int) {
	m := g.both()[i]
	_ = m.cmd.Process.Kill()
	<-m.ended
	g.start(i)
}

func (g *replicaGroup) end(i int) {
	g.both()[i].stop()
	g.start(i)
}

// slot waits for the slot of a replica.
func (g *replicaGroup) slot(i int) (slot int) {
	g.t.Helper()
	expect.Eventually(g.t, patience, func() (err error) {
		slot, _, err = g.both()[i].slotOf(g.t.Context())
		return err
	})
	return slot
}

// freeze stops a process for longer than its Lease lives, and deletes the Lease. When it goes on, it
// takes another slot.
func (g *replicaGroup) freeze(i int) {
	before, m := g.slot(i), g.both()[i]
	_ = m.cmd.Process.Signal(syscall.SIGSTOP)
	err := g.client.CoordinationV1().Leases(groupNamespace).Delete(g.t.Context(),
		fmt.Sprintf("%s-%d", groupName, before), metav1.DeleteOptions{})
	time.Sleep(16 * time.Second) // the fault lasts longer than a Lease
	_ = m.cmd.Process.Signal(syscall.SIGCONT)
	expect.NoError(g.t, err)
	g.otherSlot(i, before)
}

// rob gives the Lease of a replica to somebody else.
func (g *replicaGroup) rob(i int) {
	before := g.slot(i)
	expect.Eventually(g.t, patience, func() error {
		leases := g.client.CoordinationV1().Leases(groupNamespace)
		l, err := leases.Get(g.t.Context(), fmt.Sprintf("%s-%d", groupName, before), metav1.GetOptions{})
		if err != nil {
			return err
		}
		thief := "thief"
		l.Spec.HolderIdentity = &thief
		_, err = leases.Update(g.t.Context(), l, metav1.UpdateOptions{})
		return err // the replica may have renewed it meanwhile
	})
	g.otherSlot(i, before)
}

// otherSlot waits until a replica has another slot.
func (g *replicaGroup) otherSlot(i, before int) {
	g.t.Helper()
	expect.Eventually(g.t, patience, func() error {
		m := g.both()[i]
		if slot, renewed, err := m.slotOf(g.t.Context()); err != nil || !renewed || slot == before {
			return fmt.Errorf("slot %d after %d, renewed: %t, %w; log:\n%s", slot, before, renewed, err, m.tail())
		}
		return nil
	})
}

// cut separates a replica from the group cluster until its Lease is not valid any more. It still
// answers, with a Warning.
func (g *replicaGroup) cut(i int) {
	before := g.slot(i)
	g.proxies[i].Down()
	expect.Eventually(g.t, patience, func() error {
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
		defer cancel()
		resp, err := g.both()[i].get(ctx, configMapsOfGroup, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		warnings := strings.Join(resp.Header.Values("Warning"), "\n")
		if resp.StatusCode != http.StatusOK || !strings.Contains(warnings, "Lease of this replica is not renewed") {
			return fmt.Errorf("list is %s, %s", resp.Status, warnings)
		}
		return nil
	})
	expect.NoError(g.t, g.proxies[i].Up())
	g.healthy()
	if slot := g.slot(i); slot != before {
		g.t.Errorf("a replica that was cut off has slot %d, and had %d", slot, before)
	}
}

// converge waits until all clients have the objects of the cluster, in both of its names.
func (g *replicaGroup) converge(clients []*groupClient) {
	g.t.Helper()
	list, err := g.client.CoreV1().ConfigMaps(groupNamespace).List(g.t.Context(), metav1.ListOptions{})
	expect.NoError(g.t, err)
	var want []string
	for _, m := range list.Items {
		want = append(want, "direct/"+m.Name+"@"+m.ResourceVersion, "leases/"+m.Name+"@"+m.ResourceVersion)
	}
	slices.Sort(want)
	for n, one := range clients {
		expect.Eventually(g.t, patience, func() error {
			if has := one.has(); !slices.Equal(has, want) {
				return fmt.Errorf("client %d has\n%q, want\n%q", n, has, want)
			}
			return nil
		})
	}
}

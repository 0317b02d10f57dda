// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// network is everything that one replica connects to, and that connects to it, each through a proxy.
type network struct {
	t          *testing.T
	kubeconfig string
	configs    map[string]*rest.Config
	proxies    map[string]*kubetest.Proxy // by the name of the cluster
	peer       *kubetest.Proxy            // through which the other replica reaches this one
}

func newNetwork(t *testing.T, g *replicaGroup) *network {
	n := &network{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), configs: map[string]*rest.Config{},
		proxies: map[string]*kubetest.Proxy{}}
	add := func(name string, config *rest.Config, p *kubetest.Proxy) {
		n.proxies[name], n.configs[name] = p, p.Config(config)
	}
	add("leases", g.real[0].Config(), g.real[0].Proxy(t))
	add("direct", g.real[0].Config(), g.real[0].Proxy(t))
	add("second", g.real[1].Config(), g.real[1].Proxy(t))
	for i := range g.servers.Clusters() {
		c := g.servers.Cluster(i)
		p, err := kubetest.NewProxy(c.Addr())
		expect.NoError(t, err)
		t.Cleanup(p.Close)
		add(c.Name(), c.Config(), p)
	}
	return n
}

// writeKubeconfig writes the kubeconfig of the replica, without a cluster.
func (n *network) writeKubeconfig(absent string) {
	n.t.Helper()
	k := clientcmdapi.NewConfig()
	for name, c := range n.configs {
		if name == absent {
			continue
		}
		k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData,
			TLSServerName: c.ServerName}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificateData: c.CertData,
			ClientKeyData: c.KeyData}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	expect.NoError(n.t, clientcmd.WriteToFile(*k, n.kubeconfig))
}

// newPeer returns an address to listen at for the other replicas, and the one where they connect to. It
// is a new one for each process: a former process can still be there.
func (n *network) newPeer() (listen, address string) {
	n.t.Helper()
	if n.peer != nil {
		n.peer.Close()
	}
	listen = fmt.Sprintf("127.%d.%d.%d:7444", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	peer, err := kubetest.NewProxy(listen)
	expect.NoError(n.t, err)
	n.t.Cleanup(peer.Close)
	n.peer = peer
	return listen, peer.Addr()
}

// groupFault is something that happens to a replica. When happen returns, its cause is over.
type groupFault struct {
	name   string
	happen func(i int)
}

func (g *replicaGroup) faults() []groupFault {
	return []groupFault{
		{"killed", g.kill},
		{"ended", g.end},
		{"stopped while its Lease is deleted", g.freeze},
		{"stopped for a moment", g.pause},
		{"robbed of its Lease", g.rob},
		{"replaced while it is stopped", g.replace},
		{"cut off from the group cluster", g.cut},
		{"cut off from the other one", g.separate},
		{"cut off from members", func(i int) { g.isolate(i, (*kubetest.Proxy).Down, up) }},
		{"not answered by members", func(i int) { g.isolate(i, (*kubetest.Proxy).Stall, (*kubetest.Proxy).Resume) }},
		{"without a cluster for a while, as the other one", g.leave},
	}
}

func (g *replicaGroup) kill(i int) {
	g.at(i).Kill()
	g.startMember(i)
}

func (g *replicaGroup) end(i int) {
	g.at(i).Stop()
	g.startMember(i)
}

// slot waits for the slot of a replica.
func (g *replicaGroup) slot(i int) (slot int) {
	g.t.Helper()
	m := g.member(i)
	defer closeIdle(m.client)
	expect.Eventually(g.t, patience, func() error {
		is, err := m.membershipOf(g.t.Context())
		slot = is.Slot
		return err
	})
	return slot
}

func (g *replicaGroup) signal(i int, s syscall.Signal) {
	g.t.Helper()
	expect.NoError(g.t, g.at(i).Cmd.Process.Signal(s))
}

// freeze stops a process for longer than its Lease lives, and deletes the Lease. When it goes on, it
// takes another slot.
func (g *replicaGroup) freeze(i int) {
	before := g.slot(i)
	g.signal(i, syscall.SIGSTOP)
	err := g.clients[0].CoordinationV1().Leases(groupNamespace).Delete(g.t.Context(),
		fmt.Sprintf("%s-%d", groupName, before), metav1.DeleteOptions{})
	time.Sleep(16 * time.Second) // the fault lasts longer than a Lease
	g.signal(i, syscall.SIGCONT)
	expect.NoError(g.t, err)
	g.otherSlot(i, before)
}

// pause stops a process for up to 6 s.
func (g *replicaGroup) pause(i int) {
	g.signal(i, syscall.SIGSTOP)
	time.Sleep(time.Duration(g.rng.IntN(6000)) * time.Millisecond) // the fault
	g.signal(i, syscall.SIGCONT)
}

// rob gives the Lease of a replica to somebody else.
func (g *replicaGroup) rob(i int) {
	before := g.slot(i)
	expect.Eventually(g.t, patience, func() error {
		leases := g.clients[0].CoordinationV1().Leases(groupNamespace)
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
	m := g.member(i)
	defer closeIdle(m.client)
	expect.Eventually(g.t, patience, func() error {
		is, err := m.membershipOf(g.t.Context())
		if err != nil || !is.Renewed || is.Slot == before {
			return fmt.Errorf("replica %d has %+v after slot %d, %w; log:\n%s", i, is, before, err, m.Tail())
		}
		return nil
	})
}

// replace stops a process, starts another one in its place, which takes another slot, lets the former one
// go on beside it, and ends the former one.
func (g *replicaGroup) replace(i int) {
	before, former := g.slot(i), g.at(i)
	g.signal(i, syscall.SIGSTOP)
	g.dirs[i] = g.t.TempDir()
	g.startMember(i)
	g.otherSlot(i, before)
	expect.NoError(g.t, former.Cmd.Process.Signal(syscall.SIGCONT))
	time.Sleep(time.Duration(g.rng.IntN(4000)) * time.Millisecond) // three replicas for a moment
	former.Stop()
}

// cut separates a replica from the group cluster until its Lease is not valid any more. It still
// answers, with a Warning.
func (g *replicaGroup) cut(i int) {
	before := g.slot(i)
	g.networks[i].proxies["leases"].Down()
	g.awaitWarning(i, configMapsOfGroup, "Lease of this replica is not renewed")
	expect.NoError(g.t, g.networks[i].proxies["leases"].Up())
	g.healthy()
	if slot := g.slot(i); slot != before {
		g.t.Errorf("a replica that was cut off has slot %d, and had %d", slot, before)
	}
}

// awaitWarning waits until a list of the owner has a warning.
func (g *replicaGroup) awaitWarning(i int, path, text string) {
	g.t.Helper()
	m := g.member(i)
	defer closeIdle(m.client)
	expect.Eventually(g.t, patience, func() error {
		var list struct{}
		warnings, err := m.get(g.t.Context(), path, &list)
		if err == nil && !strings.Contains(strings.Join(warnings, "\n"), text) {
			err = fmt.Errorf("list of replica %d has the warnings %q; log:\n%s", i, warnings, m.Tail())
		}
		return err
	})
}

// separate cuts one direction between the replicas, or both, for up to 6 s.
func (g *replicaGroup) separate(i int) {
	which := []*network{g.networks[i]}
	if g.rng.IntN(2) == 0 {
		which = g.networks[:]
	}
	stalled := g.rng.IntN(2) == 0
	for _, n := range which {
		if stalled {
			n.peer.Stall()
		} else {
			n.peer.Down()
		}
	}
	time.Sleep(time.Duration(g.rng.IntN(6000)) * time.Millisecond) // the fault
	for _, n := range which {
		n.peer.Resume()
		expect.NoError(g.t, n.peer.Up())
	}
}

// up opens a proxy again.
func up(p *kubetest.Proxy) {
	if err := p.Up(); err != nil {
		panic(err) // the port is reserved
	}
}

// isolate separates a replica from some of its clusters, for up to 8 s.
func (g *replicaGroup) isolate(i int, begin, end func(*kubetest.Proxy)) {
	var which []*kubetest.Proxy
	proxies := g.networks[i].proxies
	for _, name := range slices.Sorted(maps.Keys(proxies)) {
		if name != "leases" && g.rng.IntN(2) == 0 {
			which = append(which, proxies[name])
			begin(proxies[name])
		}
	}
	time.Sleep(time.Duration(g.rng.IntN(8000)) * time.Millisecond) // the fault
	for _, p := range which {
		end(p)
	}
}

// leave takes a cluster out of both kubeconfigs, and puts it back when no replica has it.
func (g *replicaGroup) leave(int) {
	g.absent = g.servers.Cluster(simulatedClusters - 1 - g.rng.IntN(3)).Name()
	g.inKubeconfigs(g.absent, false)
	back := g.absent
	g.absent = ""
	g.inKubeconfigs(back, true)
}

// inKubeconfigs writes the kubeconfigs, and waits until all replicas have a cluster, or have it not.
func (g *replicaGroup) inKubeconfigs(name string, want bool) {
	g.t.Helper()
	for i, n := range g.networks {
		n.writeKubeconfig(g.absent)
		m := g.member(i)
		expect.Eventually(g.t, patience, func() error {
			var document struct {
				Clusters []struct{ Name, State string }
			}
			_, err := m.get(g.t.Context(), "/clusters", &document)
			has := false
			for _, c := range document.Clusters {
				has = has || c.Name == name && c.State == "live"
			}
			if err == nil && has != want {
				err = fmt.Errorf("replica %d has cluster %s: %t; log:\n%s", i, name, has, m.Tail())
			}
			return err
		})
		closeIdle(m.client)
	}
}

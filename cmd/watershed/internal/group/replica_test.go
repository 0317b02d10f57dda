// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package group

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

// groupCluster is a real API server for Leases, behind a proxy.
type groupCluster struct {
	*kubetest.Cluster
	proxy  *kubetest.Proxy
	leases coordinationclient.LeaseInterface
}

const namespace = "default"

func TestReplica(t *testing.T) {
	c := kubetest.Start(t, nil)
	w := &groupCluster{Cluster: c, proxy: c.Proxy(t)}
	w.leases = kubernetes.NewForConfigOrDie(c.Config()).CoordinationV1().Leases(namespace)
	t.Run("slots", w.testSlots)
	t.Run("expiry", w.testExpiry)
	t.Run("lost", w.testLost)
	t.Run("deleted while stopped", w.testDeletedWhileStopped)
	t.Run("modified", w.testModified)
	t.Run("replaced", w.testReplaced)
	t.Run("the bound", w.testBound)
	t.Run("foreign Leases", w.testForeign)
	t.Run("cut off", w.testCutOff)
}

// join returns a replica whose rounds the test runs.
func (w *groupCluster) join(t *testing.T, group string) *Replica {
	t.Helper()
	cluster, err := kube.FromConfig(w.proxy.Config(w.Config()), &kube.Options{Name: "group"})
	expect.NoError(t, err)
	t.Cleanup(cluster.CloseIdleConnections)
	return New(Options{
		Group: group, Namespace: namespace, Cluster: func() *kube.Cluster { return cluster },
		Address: "10.0.0.1:7444", Key: "key", Logger: slog.New(slog.DiscardHandler),
	})
}

// sleep makes the monotonic clock of a replica jump, and not the time of the group.
func (r *Replica) sleep(d time.Duration) {
	r.clock.base = r.clock.base.Add(-d)
	r.clock.epoch.Add(-int64(d))
}

// mustRound runs a round.
func (r *Replica) mustRound(t *testing.T) {
	t.Helper()
	expect.NoError(t, r.round(t.Context()))
}

// version returns the version of the term's slot at a time.
func (r *Replica) version(micros uint64) uint64 { return micros<<10 | uint64(r.Term().Slot()) }

// testSlots has many processes start at once.
func (w *groupCluster) testSlots(t *testing.T) {
	var all []*Replica
	var starting sync.WaitGroup
	for range 8 {
		m := w.join(t, "slots")
		if m.Renewed() || !m.Term().Ended() {
			t.Error("a replica that has not run has a Lease")
		}
		all = append(all, m)
		starting.Go(func() { m.mustRound(t) })
	}
	starting.Wait()
	slots := map[int]bool{}
	for _, m := range all {
		m.mustRound(t)
		slots[m.Term().Slot()] = true
		if !m.Renewed() || m.Term().Ended() || len(m.Peers()) != 7 {
			t.Errorf("renewed: %t, ended: %t, %d peers", m.Renewed(), m.Term().Ended(), len(m.Peers()))
		}
	}
	if len(slots) != 8 {
		t.Errorf("the slots are %v", slots)
	}
	changed := all[0].Changed()
	all[7].release(t.Context())
	all[0].mustRound(t)
	select {
	case <-changed:
	default:
		t.Error("the release of a Lease does not change the peers")
	}
	peers := all[0].Peers()
	if len(peers) != 6 || slices.ContainsFunc(peers, func(p Peer) bool {
		return p.Holder == "" || p.Holder == all[0].Holder() || p.Address != "10.0.0.1:7444" || p.Key != "key" ||
			p.Format != Format
	}) {
		t.Errorf("the peers are %+v", peers)
	}
	if all[7].Renewed() || !all[7].Term().Ended() {
		t.Error("a replica that has released its Lease still has it")
	}
}

// testExpiry observes a replica that does not renew its Lease.
func (w *groupCluster) testExpiry(t *testing.T) {
	a, b := w.join(t, "expiry"), w.join(t, "expiry")
	a.mustRound(t)
	b.mustRound(t)
	b.sleep(expiry - time.Second)
	b.mustRound(t)
	a.sleep(validity)
	if len(b.Peers()) != 1 || a.Renewed() || a.now() != 0 || a.Warning() == "" {
		t.Errorf("%d peers; renewed: %t, now: %d, warning %q", len(b.Peers()), a.Renewed(), a.now(), a.Warning())
	}
	b.sleep(time.Second)
	b.mustRound(t)
	if len(b.Peers()) != 0 {
		t.Errorf("the peers are %+v", b.Peers())
	}
	slot := a.Term().Slot()
	a.mustRound(t)
	b.mustRound(t)
	if a.Term().Slot() != slot || !a.Renewed() || a.now() == 0 || len(b.Peers()) != 1 {
		t.Errorf("slot %d, before %d; renewed: %t; %d peers", a.Term().Slot(), slot, a.Renewed(), len(b.Peers()))
	}
}

// testLost takes the Lease of a replica, deletes it, and replaces it by another one of that name.
func (w *groupCluster) testLost(t *testing.T) {
	m := w.join(t, "lost")
	m.mustRound(t)
	had := map[int]bool{}
	for name, lose := range map[string]func(l *coordinationv1.Lease) error{
		"taken": func(l *coordinationv1.Lease) error {
			other := "other"
			l.Spec.HolderIdentity = &other
			_, err := w.leases.Update(t.Context(), l, metav1.UpdateOptions{})
			return err
		},
		"deleted": func(l *coordinationv1.Lease) error {
			return w.leases.Delete(t.Context(), l.Name, metav1.DeleteOptions{})
		},
		"deleted and created": func(l *coordinationv1.Lease) error {
			expect.NoError(t, w.leases.Delete(t.Context(), l.Name, metav1.DeleteOptions{}))
			again := l.DeepCopy()
			again.UID, again.ResourceVersion = "", ""
			_, err := w.leases.Create(t.Context(), again, metav1.CreateOptions{})
			return err
		},
	} {
		before := m.Term()
		had[before.Slot()] = true
		expect.NoError(t, lose(m.own.DeepCopy()))
		m.mustRound(t)
		if !before.Ended() || m.Term() == before || had[m.Term().Slot()] || !m.Renewed() {
			t.Errorf("%s: ended: %t; slot %d after %v", name, before.Ended(), m.Term().Slot(), had)
		}
	}
}

// testDeletedWhileStopped deletes the Lease of a replica that is stopped, and lets another one take its slot.
func (w *groupCluster) testDeletedWhileStopped(t *testing.T) {
	stopped, other := w.join(t, "stopped"), w.join(t, "stopped")
	stopped.mustRound(t)
	term, slot := stopped.Term(), stopped.Term().Slot()
	expect.NoError(t, w.leases.Delete(t.Context(), stopped.own.Name, metav1.DeleteOptions{}))
	expect.NoError(t, other.connect())
	expect.NoError(t, other.observe(t.Context()))
	for _, r := range []*Replica{stopped, other} {
		r.clock.epoch.Add(int64(time.Minute)) // the stopped one has had its slot for a minute
	}
	_, err := other.take(t.Context(), slot, nil)
	expect.NoError(t, err)
	expect.Equal(t, other.Term().Slot(), slot)

	// The stopped process goes on, and issues versions until it looks at its Lease. None of them can be
	// one of the other process, also at the end of the time for which its Lease counts as held.
	last := stopped.version(stopped.now() + uint64(validity/time.Microsecond))
	if !term.Allows(last) || other.Term().Allows(last) {
		t.Errorf("version %d: the stopped process may issue it: %t, the other one: %t", last, term.Allows(last),
			other.Term().Allows(last))
	}
	stopped.mustRound(t)
	if !term.Ended() || stopped.Term().Slot() == slot || !stopped.Renewed() {
		t.Errorf("ended: %t, slot %d after %d", term.Ended(), stopped.Term().Slot(), slot)
	}
	if other.mustRound(t); other.Term().Ended() || other.Term().Slot() != slot {
		t.Error("the other process has lost the slot")
	}
}

// testModified changes the annotations of a replica's Lease, which it corrects.
func (w *groupCluster) testModified(t *testing.T) {
	m := w.join(t, "modified")
	m.mustRound(t)
	before, bound := m.Term(), m.Term().Bound()
	l := m.own.DeepCopy()
	l.Annotations = map[string]string{boundAnnotation: "1", "other": "stays"}
	_, err := w.leases.Update(t.Context(), l, metav1.UpdateOptions{})
	expect.NoError(t, err)
	m.mustRound(t)
	l, err = w.leases.Get(t.Context(), l.Name, metav1.GetOptions{})
	expect.NoError(t, err)
	stored, _ := strconv.ParseUint(l.Annotations[boundAnnotation], 10, 64)
	if m.Term() != before || before.Ended() || stored < bound || l.Annotations["other"] != "stays" {
		t.Errorf("ended: %t; the bound is %d, was %d; %v", before.Ended(), stored, bound, l.Annotations)
	}
}

// testReplaced leaves a Lease whose bound has passed, which is taken first, and one whose bound has
// not.
func (w *groupCluster) testReplaced(t *testing.T) {
	a, b := w.join(t, "replaced"), w.join(t, "replaced")
	a.mustRound(t)
	b.mustRound(t)
	old, kept := a.own.Name, b.own.Name
	a.release(t.Context())
	b.release(t.Context())
	l, err := w.leases.Get(t.Context(), old, metav1.GetOptions{})
	expect.NoError(t, err)
	past := uint64(time.Now().Add(-time.Minute).UnixMicro())
	l.Annotations[boundAnnotation] = strconv.FormatUint(past, 10)
	_, err = w.leases.Update(t.Context(), l, metav1.UpdateOptions{})
	expect.NoError(t, err)
	c, d := w.join(t, "replaced"), w.join(t, "replaced")
	c.mustRound(t)
	d.mustRound(t)
	if c.own.Name != old || d.own.Name == kept || d.own.Name == old {
		t.Errorf("taken are %s and %s, and left were %s and %s", c.own.Name, d.own.Name, old, kept)
	}
	if term := c.Term(); term.Allows(c.version(past)) || !term.Allows(c.version(past+1)) {
		t.Error("the term does not begin at the bound that it replaces")
	}
	// The other Lease is replaced if no slot is left.
	e := w.join(t, "replaced")
	expect.NoError(t, e.connect())
	expect.NoError(t, e.observe(t.Context()))
	bound := e.seen[kept].bound
	_, err = e.take(t.Context(), e.seen[kept].peer.Slot, e.seen[kept])
	expect.NoError(t, err)
	if term := e.Term(); term.Allows(e.version(bound)) || !term.Allows(e.version(bound+1)) ||
		term.Allows(e.version(term.Bound())) {
		t.Error("the versions are not between the bound that was replaced and the own one")
	}
	if ahead := e.Status().Ahead; ahead < 59*60 || ahead > 60*60 {
		t.Errorf("the versions are %g s ahead", ahead)
	}
	if ahead := d.Status().Ahead; ahead != 0 {
		t.Errorf("before a version was shown, versions are %g s ahead", ahead)
	}
	// Nobody else can replace it at the version that it had.
	f := w.join(t, "replaced")
	expect.NoError(t, f.connect())
	expect.NoError(t, f.observe(t.Context()))
	e.mustRound(t)
	if taken, err := f.take(t.Context(), f.seen[kept].peer.Slot, f.seen[kept]); !taken || err == nil {
		t.Errorf("a Lease that was renewed was replaced: %v", err)
	}
}

// testBound renews and restarts without a pause. No bound is more than 70 minutes ahead.
func (w *groupCluster) testBound(t *testing.T) {
	most := time.Duration(0)
	look := func() {
		t.Helper()
		list, err := w.leases.List(t.Context(), metav1.ListOptions{LabelSelector: label + "=bound"})
		expect.NoError(t, err)
		for _, l := range list.Items {
			bound, err := strconv.ParseInt(l.Annotations[boundAnnotation], 10, 64)
			expect.NoError(t, err)
			most = max(most, time.Until(time.UnixMicro(bound)))
		}
	}
	a, b := w.join(t, "bound"), w.join(t, "bound")
	for range 500 {
		a.mustRound(t)
		b.mustRound(t)
	}
	look()
	if most < 59*time.Minute {
		t.Errorf("the bound is only %s ahead", most)
	}
	for i := range 100 {
		next := w.join(t, "bound")
		if i%2 == 0 {
			a.release(t.Context()) // else it is killed
		}
		next.mustRound(t)
		a = next
	}
	look()
	t.Logf("after restarts the bound was at most %s ahead", most)
	for range 100 { // as if no other slot were left
		next := w.join(t, "bound")
		expect.NoError(t, next.connect())
		expect.NoError(t, next.observe(t.Context()))
		next.sleep(expiry)
		_, err := next.take(t.Context(), next.seen[a.own.Name].peer.Slot, next.seen[a.own.Name])
		expect.NoError(t, err)
		next.mustRound(t)
		a = next
	}
	look()
	t.Logf("the bound was at most %s ahead", most)
	if most > 70*time.Minute {
		t.Errorf("the bound is %s ahead", most)
	}
}

// testForeign has Leases in the group that no replica of this version has written.
func (w *groupCluster) testForeign(t *testing.T) {
	const group = "foreign"
	holder := "somebody"
	create := func(name, of string, annotations map[string]string) {
		t.Helper()
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		l.Labels = map[string]string{label: of}
		l.Spec.HolderIdentity = &holder
		_, err := w.leases.Create(t.Context(), l, metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	bound := strconv.FormatInt(time.Now().UnixMicro(), 10)
	create(group+"-1", group, map[string]string{formatAnnotation: "1", boundAnnotation: fmt.Sprint(1 << 62)})
	create(group+"-2", group, map[string]string{formatAnnotation: "2", boundAnnotation: bound})
	create(group+"-3", group, map[string]string{formatAnnotation: "1", boundAnnotation: "-1"})
	create(group+"-04", group, map[string]string{formatAnnotation: "1", boundAnnotation: bound})
	create(group+"-512", group, map[string]string{formatAnnotation: "1", boundAnnotation: bound})
	create("kube-scheduler", group, nil)
	create(group+"-5", "another", map[string]string{formatAnnotation: "1", boundAnnotation: bound})
	m := w.join(t, group)
	m.mustRound(t)
	if ahead := m.Status().Bound; ahead < 59*60 || ahead > 61*60 {
		t.Errorf("the bound is %g s ahead", ahead)
	}
	if m.Term().Allows(1 << 62) {
		t.Error("version 2^62 is allowed")
	}
	if ignored := m.Status().Ignored; len(ignored) != 6 {
		t.Errorf("ignored are %v", ignored)
	}
	if peers := m.Peers(); len(peers) != 1 || peers[0].Slot != 2 || peers[0].Format != 2 {
		t.Errorf("the peers are %+v", peers)
	}
	// None of them is replaced or deleted when its holder seems to have ended.
	m.sleep(expiry)
	m.mustRound(t)
	refused := map[int]bool{}
	for range fleet.GroupSlots {
		slot, replaced, ok := m.choose(refused)
		if !ok {
			break
		}
		if refused[slot] = true; replaced != nil || slot >= 1 && slot <= 3 {
			t.Errorf("slot %d can be taken from %+v", slot, replaced)
		}
	}
	// The name of a free slot is taken: another one is.
	n := w.join(t, group)
	expect.NoError(t, n.connect())
	expect.NoError(t, n.observe(t.Context()))
	if taken, err := n.take(t.Context(), 5, nil); !taken || err == nil {
		t.Errorf("the Lease of another group was taken: %v", err)
	}
	list, err := w.leases.List(t.Context(), metav1.ListOptions{LabelSelector: label + "=" + group})
	expect.NoError(t, err)
	if len(list.Items) != 7 {
		t.Errorf("%d Leases are left", len(list.Items))
	}
}

// testCutOff separates a replica from the cluster.
func (w *groupCluster) testCutOff(t *testing.T) {
	a, b := w.join(t, "cut-off"), w.join(t, "cut-off")
	a.mustRound(t)
	b.mustRound(t)
	term, at := a.Term(), a.now()
	shown := at + uint64(2*expiry/time.Microsecond) // a new slot begins later than the time
	w.proxy.Down()
	if err := a.round(t.Context()); err == nil {
		t.Error("a round succeeds without a connection")
	} else {
		a.report(err)
	}
	if !a.Renewed() {
		t.Error("one failed renewal ends the validity")
	}
	a.sleep(expiry)
	a.publish()
	if a.Renewed() || a.now() != 0 || term.Ended() || !term.Allows(a.version(shown)) || len(a.Peers()) != 0 {
		t.Errorf("renewed: %t, now: %d, ended: %t, peers %v", a.Renewed(), a.now(), term.Ended(), a.Peers())
	}
	if text := a.Warning(); !strings.Contains(text, "not renewed") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("the warning is %q", text)
	}
	expect.NoError(t, w.proxy.Up())
	a.mustRound(t)
	if a.Term() != term || !a.Renewed() || a.now() <= at {
		t.Errorf("slot %d, before %d; renewed: %t", a.Term().Slot(), term.Slot(), a.Renewed())
	}
	// Its Lease is old enough to be deleted: another replica does, and it takes another slot.
	l := a.own.DeepCopy()
	l.Annotations[boundAnnotation] = strconv.FormatInt(time.Now().Add(-time.Hour).UnixMicro(), 10)
	_, err := w.leases.Update(t.Context(), l, metav1.UpdateOptions{})
	expect.NoError(t, err)
	b.mustRound(t)
	b.sleep(expiry)
	b.mustRound(t)
	a.mustRound(t)
	if !term.Ended() || a.Term().Slot() == term.Slot() {
		t.Errorf("ended: %t, slot %d after %d", term.Ended(), a.Term().Slot(), term.Slot())
	}
}

// TestChoose_lowestBound leaves no free slot.
func TestChoose_lowestBound(t *testing.T) {
	m := New(Options{Group: "g"})
	m.clock.learn(time.Now(), m.clock.elapsed(), m.clock.elapsed())
	now := uint64(time.Now().UnixMicro())
	for slot := range fleet.GroupSlots {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName("g", slot)}}
		// Released, with bounds that grow from slot 100 on.
		m.seen[l.Name] = &observation{lease: l, entry: entry{peer: Peer{Slot: slot},
			bound: now + uint64(time.Hour.Microseconds()) + uint64((slot+fleet.GroupSlots-100)%fleet.GroupSlots)}}
	}
	for _, want := range []int{100, 101, 102} {
		slot, replaced, ok := m.choose(nil)
		if !ok || slot != want || replaced.peer.Slot != want {
			t.Errorf("slot %d is chosen: %t, want %d", slot, ok, want)
		}
		m.used[want] = true // it is never used again
	}
	m.seen[leaseName("g", 103)].err = errNoLease
	if slot, _, _ := m.choose(map[int]bool{104: true}); slot != 105 {
		t.Errorf("slot %d is chosen, want 105", slot)
	}
	for slot := range fleet.GroupSlots {
		m.used[slot] = true
	}
	if slot, _, ok := m.choose(nil); ok {
		t.Errorf("slot %d is chosen", slot)
	}
}

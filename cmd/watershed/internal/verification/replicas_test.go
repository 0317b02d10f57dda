// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// copied is a replica of a simulated cluster.
type copied struct {
	*simulated.Cluster
	fleet *fleet.Fleet
	pods  pair
}

// pods is the resource that the tests compare.
var pods = schema.GroupResource{Resource: "pods"}

// replicate returns a replica of a cluster of its own. The clusters of all replicas begin with the same
// state, and have the same name and UID.
func replicate(t *testing.T) *copied {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Pods: 50})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	c := &copied{Cluster: s.Cluster(0)}
	clusters, err := directory.NewStatic(fleet.Entry{Name: c.Name(), Config: c.Config()})
	expect.NoError(t, err)
	c.fleet, err = fleet.New(clusters, &fleet.Options{
		Resources: []string{"pods"}, History: 16 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	expect.NoError(t, err)
	run(t, c.fleet.Run)
	expect.NoError(t, c.fleet.WaitForSync(t.Context()))
	m, _ := c.fleet.Member(c.Name())
	c.pods = pair{member: m, resource: pods}
	return c
}

// run runs a function until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { expect.NoError(t, f(ctx)) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// reached waits until the copy has a version.
func (c *copied) reached(t *testing.T, version uint64) {
	t.Helper()
	feed, _ := c.pods.member.Feed(pods)
	_, err := feed.Wait(t.Context(), version)
	expect.NoError(t, err)
}

// compare compares the copy with that of another replica.
func (c *copied) compare(t *testing.T, with *copied) Result {
	t.Helper()
	result := c.pods.result()
	expect.NoError(t, c.pods.compareVersions(t.Context(), NewAnswerer(with.fleet).Answer, &result))
	return result
}

// TestVersions compares two copies that are equal, that are at two versions, and that differ.
func TestVersions(t *testing.T) {
	a, b := replicate(t), replicate(t)
	if r := a.compare(t, b); r.Diverged() != 0 || r.Objects != 50 || r.Version == "" {
		t.Errorf("two equal copies: %+v", r)
	}
	name := func(c *copied, i int) string { return c.Pod(i).Namespace + "/" + c.Pod(i).Name }
	touched, removed := name(a, 0), name(a, 1)
	before := version(a.Version())
	a.reached(t, a.Touch(0))
	for _, r := range []Result{a.compare(t, b), b.compare(t, a)} {
		if r.Diverged() != 0 || r.Version != before {
			t.Errorf("one copy is a version ahead: %+v", r)
		}
	}
	b.reached(t, b.Delete(1))
	want := func(r Result, all ...Example) {
		t.Helper()
		if r.Version != version(a.Version()) || r.Diverged() != len(all) || len(r.Examples) != len(all) {
			t.Fatalf("the result is %+v", r)
		}
		for i := range all {
			e := r.Examples[i]
			if e.Kind != all[i].Kind || e.Key != all[i].Key {
				t.Errorf("the difference is %+v, want %+v", e, all[i])
			}
		}
	}
	first, second := Example{Kind: "ahead", Key: touched}, Example{Kind: "extra", Key: removed}
	if removed < touched {
		first, second = second, first
	}
	want(a.compare(t, b), first, second)
	want(b.compare(t, a), Example{Kind: "stale", Key: touched}, Example{Kind: "missing"})
}

// TestAttack_versions asks for the versions of a copy as a replica would that does not have the objects.
func TestAttack_versions(t *testing.T) {
	a := replicate(t)
	answers := NewAnswerer(a.fleet)
	feed, _ := a.pods.member.Feed(pods)
	now, err := feed.Now()
	expect.NoError(t, err)
	good := question{Cluster: a.Name(), UID: a.pods.member.Identity().UID, Resource: "pods", Version: now.Version}
	ask := func(change func(q *question)) ([]byte, error) {
		q := good
		change(&q)
		raw, err := json.Marshal(q)
		expect.NoError(t, err)
		return answers.Answer(t.Context(), raw)
	}
	raw, err := ask(func(*question) {})
	expect.NoError(t, err)
	var is answer
	expect.NoError(t, json.Unmarshal(raw, &is))
	if is.Equal || len(is.Versions) != 50*entrySize {
		t.Fatalf("the answer is %s", raw)
	}
	for i := range 50 {
		p := a.Pod(i)
		for _, secret := range []string{p.Namespace, p.Name, string(p.UID)} {
			if bytes.Contains(is.Versions, []byte(secret)) || strings.Contains(string(raw), secret) {
				t.Errorf("the answer has %q", secret)
			}
		}
	}
	for name, change := range map[string]func(q *question){
		"another cluster":     func(q *question) { q.Cluster = "other" },
		"another UID":         func(q *question) { q.UID = "other" },
		"another resource":    func(q *question) { q.Resource = "secrets" },
		"an unknown version":  func(q *question) { q.Version = 1 },
		"no resource":         func(q *question) { q.Resource = "" },
		"a resource's prefix": func(q *question) { q.Resource = "po" },
	} {
		if raw, err := ask(change); err == nil {
			t.Errorf("%s: the answer is %s", name, raw)
		}
	}
	if raw, err := answers.Answer(t.Context(), []byte("pods")); err == nil {
		t.Errorf("the answer is %s", raw)
	}
	raw, err = ask(func(q *question) { q.Version = math.MaxUint64 })
	expect.NoError(t, err)
	expect.Equal(t, string(raw), `{"version":`+version(now.Version)+`,"equal":false}`)
}

// TestAttack_manyQuestions asks while another question is being answered.
func TestAttack_manyQuestions(t *testing.T) {
	a := replicate(t)
	answers := NewAnswerer(a.fleet)
	answers.turn <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	raw, err := json.Marshal(question{Cluster: a.Name(), UID: a.pods.member.Identity().UID, Resource: "pods"})
	expect.NoError(t, err)
	if _, err := answers.Answer(ctx, raw); !errors.Is(err, peer.ErrBusy) {
		t.Errorf("during another question: %v", err)
	}
}

// TestAttack_replicasWithoutTheRight compares replicas as a caller that may not verify the cluster.
func TestAttack_replicasWithoutTheRight(t *testing.T) {
	a := replicate(t)
	others := NewReplicas(a.fleet, nil, nil)
	s := NewService(a.fleet, others)
	nothing := func(*fleet.Member) bool { return false }
	_, err := s.plan(&Spec{Replicas: true, Clusters: []string{a.Name()}}, nothing)
	if err == nil || !strings.Contains(err.Error(), "there is no cluster") {
		t.Errorf("a cluster that the caller may not verify: %v", err)
	}
	plan, err := s.plan(&Spec{Replicas: true}, nothing)
	expect.NoError(t, err)
	all, err := others.compareAll(t.Context(), plan)
	expect.NoError(t, err)
	expect.Equal(t, len(all), 0)
	for _, spec := range []Spec{{Replicas: true, Deep: true}, {Replicas: true, Repair: true}} {
		if _, err := s.create(nil, nil, New(spec)); err == nil {
			t.Errorf("%+v is accepted", spec)
		}
	}
}

// TestReplicas_visit compares with another replica over the network: a difference is a problem until the
// replica has left.
func TestReplicas_visit(t *testing.T) {
	a, b := replicate(t), replicate(t)
	var mu sync.Mutex
	var list []peer.Peer
	changed := make(chan struct{})
	members := func() []peer.Peer {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
	exchange := func(f *fleet.Fleet, holder string, slot int) *peer.Exchange {
		key, err := peer.NewKey()
		expect.NoError(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		expect.NoError(t, err)
		e, err := peer.New(l, peer.Options{
			Key: key, Holder: holder, Peers: members, Changed: func() <-chan struct{} { return changed },
			Renewed: func() bool { return true }, Report: func() ([]byte, error) { return nil, nil },
			Reported: func(peer.Peer, []byte) {}, Versions: NewAnswerer(f).Answer,
			Logger: slog.New(slog.DiscardHandler),
		})
		expect.NoError(t, err)
		list = append(list, peer.Peer{
			Holder: holder, Slot: slot, Address: l.Addr().String(), Key: key.Hash(), Format: peer.Format,
		})
		return e
	}
	ours, theirs := exchange(a.fleet, "a", 0), exchange(b.fleet, "b", 1)
	r := NewReplicas(a.fleet, ours, slog.New(slog.DiscardHandler))
	run(t, ours.Run)
	run(t, theirs.Run)
	run(t, r.Run)
	expect.Soon(t, "a comparison", func() bool { return r.Stats().Equal > 0 })
	expect.Equal(t, len(r.Problems("")), 0)

	a.reached(t, a.Touch(0))
	b.reached(t, b.Touch(1))
	d := difference{a.Name(), pods, list[1]}
	r.visit(t.Context(), d, 0)
	all := r.Problems("ReplicasDisagree")
	if len(all) != 1 || all[0].Reason != "ReplicasDisagree" || r.Stats().Different < 2 ||
		!strings.Contains(all[0].Message, "slot 1 has other objects in pods of cluster "+a.Name()) {
		t.Fatalf("the problems are %+v, and the counts %+v", all, r.Stats())
	}
	r.visit(t.Context(), d, 0)
	if again := r.Problems(""); len(again) != 1 || !again[0].Since.Equal(all[0].Since) {
		t.Errorf("the second time the problems are %+v", again)
	}
	mu.Lock()
	list = list[:1]
	mu.Unlock()
	close(changed)
	expect.Soon(t, "the difference is forgotten", func() bool {
		r.visit(t.Context(), d, 0)
		return len(r.Problems("")) == 0
	})
}

// TestReplicas_lag has another replica that does not go on.
func TestReplicas_lag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReplicas(nil, nil, slog.New(slog.DiscardHandler))
		other := peer.Peer{Slot: 7}
		report := func(version, own uint64, want time.Duration) {
			t.Helper()
			time.Sleep(time.Minute)
			r.Reached(other, "eu", version, own)
			expect.Equal(t, r.Stats().Lag, want)
			if has := len(r.Problems("")) > 0; has != (want > mostLag) {
				t.Errorf("after %s, a problem: %v", want, has)
			}
		}
		report(100, 100, 0)
		report(100, 150, 0)
		report(149, 200, time.Minute) // far from the newest version, and it goes on
		report(150, 300, 0)
		report(299, 300, time.Minute)
		report(299, 400, 2*time.Minute)
		report(299, 400, 3*time.Minute)
		report(299, 400, 4*time.Minute)
		if text := r.Problems("")[0].Message; !strings.Contains(text, "slot 7 says that cluster eu is live, and has "+
			"not reached version 300, which this replica had 4m0s before") {
			t.Errorf("the problem is %q", text)
		}
		time.Sleep(reportAge + time.Second)
		if r.Stats().Lag != 0 || len(r.Problems("")) > 0 {
			t.Error("a replica that does not report any more has a lag")
		}
		report(math.MaxUint64, 400, 0)
		report(400, 400, 0)
	})
}

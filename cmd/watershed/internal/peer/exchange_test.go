// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/timer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replicaList is the list of a group, as the Leases of a cluster have it.
type replicaList struct {
	changed timer.Broadcast

	mu    sync.Mutex
	peers []Peer
}

// list returns the replicas.
func (g *replicaList) list() []Peer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.peers)
}

// change changes the list.
func (g *replicaList) change(by func(peers []Peer) []Peer) {
	g.mu.Lock()
	g.peers = by(g.peers)
	g.mu.Unlock()
	g.changed.Send()
}

// add adds a replica.
func (g *replicaList) add(p Peer) { g.change(func(all []Peer) []Peer { return append(all, p) }) }

// remove removes a replica.
func (g *replicaList) remove(holder string) {
	g.change(func(all []Peer) []Peer {
		return slices.DeleteFunc(all, func(p Peer) bool { return p.Holder == holder })
	})
}

// member is a replica of a group.
type member struct {
	*Exchange
	Peer
	stop func()

	mu      sync.Mutex
	notes   []string
	reports []string
	// receive, unless it is nil, is called for notes.
	receive func(note []byte) error
	// lost means that the Lease cannot be renewed.
	lost bool
}

// join starts a replica and adds it to the list.
func (g *replicaList) join(t *testing.T, holder string, slot int) *member {
	t.Helper()
	key, err := NewKey()
	expect.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	m := &member{Peer: Peer{Holder: holder, Slot: slot, Address: l.Addr().String(), Key: key.Hash(), Format: Format}}
	m.Exchange, err = New(l, Options{
		Key: key, Holder: holder, Peers: g.list, Changed: g.changed.Wait, MaxNote: 1 << 10,
		Renewed: func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return !m.lost
		},
		Receive: m.record, Report: func() ([]byte, error) { return []byte(`"` + holder + `"`), nil },
		Versions: func(_ context.Context, question []byte) ([]byte, error) {
			if string(question) == "busy" {
				return nil, ErrBusy
			}
			return append(question, holder...), nil
		},
		Reported: func(_ Peer, report []byte) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.reports = append(m.reports, string(report))
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	expect.NoError(t, err)
	g.add(m.Peer)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		expect.NoError(t, <-ended)
	})
	t.Cleanup(m.stop)
	return m
}

// record records a note.
func (m *member) record(note []byte) error {
	m.mu.Lock()
	receive := m.receive
	m.notes = append(m.notes, string(note))
	m.mu.Unlock()
	if receive != nil {
		return receive(note)
	}
	return nil
}

// has reports whether a note has arrived.
func (m *member) has(note string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.notes, note)
}

// connected reports whether the member is connected to a number of others, and all of them to it.
func (m *member) connected(others int) bool {
	s := m.Stats()
	return s.Connected == others && s.Unreachable == 0 && m.Complete()
}

// TestExchange_notes sends notes between three replicas, and stops one of them.
func TestExchange_notes(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	c := g.join(t, "c", 2)
	expect.Soon(t, "all are connected", func() bool { return a.connected(2) && b.connected(2) && c.connected(2) })
	expect.Soon(t, "a note is acknowledged", func() bool { return a.Send(t.Context(), []byte("first")) })
	if !b.has("first") || !c.has("first") || a.has("first") {
		t.Errorf("an acknowledged note is not at the others: %v %v, or at its sender: %v", b.notes, c.notes, a.notes)
	}
	expect.Soon(t, "reports", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return slices.Contains(a.reports, `"b"`) && slices.Contains(a.reports, `"c"`)
	})

	answer, err := a.Versions(t.Context(), b.Peer, []byte("question to "))
	expect.NoError(t, err)
	expect.Equal(t, string(answer), "question to b")
	if _, err := a.Versions(t.Context(), Peer{Holder: "stranger"}, nil); !errors.Is(err, errNotListed) {
		t.Errorf("a replica that is not in the list is asked: %v", err)
	}

	c.stop()
	expect.Soon(t, "a note arrives where it can", func() bool {
		if a.Send(t.Context(), []byte("second")) {
			t.Error("a note was acknowledged, and one of the replicas has ended")
		}
		return b.has("second")
	})
	expect.Soon(t, "the others notice", func() bool { return !a.Complete() && a.Stats().Unreachable == 1 })
	g.remove("c")
	expect.Soon(t, "two are connected", func() bool { return a.connected(1) && b.connected(1) })
	expect.Soon(t, "a note is acknowledged", func() bool { return a.Send(t.Context(), []byte("third")) })
	expect.Equal(t, b.has("third"), true)

	a.mu.Lock()
	a.lost = true
	a.mu.Unlock()
	if a.Send(t.Context(), []byte("fourth")) || a.Complete() {
		t.Error("a replica without its Lease may not know all others, and acknowledges a note")
	}
}

// TestExchange_slowReplica has a replica that receives a note and does not answer: the sender does not
// wait for it, and the note arrives.
func TestExchange_slowReplica(t *testing.T) {
	var g replicaList
	a, b := g.join(t, "a", 0), g.join(t, "b", 1)
	expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
	answer := make(chan struct{})
	b.mu.Lock()
	b.receive = func([]byte) error { <-answer; return nil }
	b.mu.Unlock()
	expect.Soon(t, "the note arrives", func() bool {
		if a.Send(t.Context(), []byte("slow")) {
			t.Error("a note was acknowledged before it was recorded")
		}
		return b.has("slow")
	})
	close(answer)
	b.mu.Lock()
	b.receive = func([]byte) error { return ErrBusy }
	b.mu.Unlock()
	if a.Send(t.Context(), []byte("busy")) {
		t.Error("a refused note was acknowledged")
	}
	b.mu.Lock()
	b.receive = func([]byte) error { return errors.New("invalid") }
	b.mu.Unlock()
	if a.Send(t.Context(), []byte("invalid")) {
		t.Error("an invalid note was acknowledged")
	}
}

// TestExchange_unusable has replicas in the list that run and cannot be used: they count as
// unreachable, and nothing is acknowledged.
func TestExchange_unusable(t *testing.T) {
	for name, change := range map[string]func(a *member, p *Peer){
		"another format":          func(_ *member, p *Peer) { p.Format = Format + 1 },
		"the key of this replica": func(a *member, p *Peer) { p.Key = a.Key },
		"no address":              func(_ *member, p *Peer) { p.Address = "" },
		"nobody there":            func(_ *member, p *Peer) { p.Address = "127.0.0.1:1" },
	} {
		t.Run(name, func(t *testing.T) {
			var g replicaList
			a, b := g.join(t, "a", 0), g.join(t, "b", 1)
			expect.Soon(t, "both are connected", func() bool { return a.connected(1) && b.connected(1) })
			p := b.Peer
			change(a, &p)
			g.change(func([]Peer) []Peer { return []Peer{a.Peer, p} })
			expect.Soon(t, "the replica is unreachable", func() bool { return a.Stats().Unreachable == 1 })
			if a.Send(t.Context(), []byte("note")) || b.has("note") {
				t.Error("a note was sent to the replica")
			}
			code := a.send(t, stranger(t, b.own), http.MethodPost, notePath, []byte("note"))
			if usable := name == "no address" || name == "nobody there"; a.has("note") && !usable {
				t.Errorf("a note of the replica was accepted with %d", code)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		var g replicaList
		a := g.join(t, "a", 0)
		g.change(func(all []Peer) []Peer {
			for i := range maxPeers + 1 {
				holder := string(rune('b' + i))
				all = append(all, Peer{Holder: holder, Slot: i + 1, Address: "127.0.0.1:1", Format: Format})
			}
			return all
		})
		expect.Soon(t, "one too many", func() bool { return a.Stats().Unreachable == maxPeers+1 })
		excess := 0
		for _, r := range a.all() {
			if r.useless != nil {
				excess++
			}
		}
		expect.Equal(t, excess, 1)
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/replica"
)

var (
	histories = flag.Int("histories", 2000, "how many random histories TestDifferential lives through")
	firstSeed = flag.Uint64("seed", 0, "the seed of its first history, 0 is a random one")
)

// TestDifferential_watchesEndAsTheServerIs runs random histories of clusters whose
// servers are written to, break connections, compact and are restored from backups, and
// of clients that list, watch, stop, read slowly, and switch to the API server and back,
// with whatever version they hold. The journals of the servers are the model:
//
//   - a list, and the state of a client at a bookmark, is the model's state at that version;
//   - a client that continues at the API server then has the current state;
//   - a version expires only for a reason that the model has;
//   - in the end each client has the current state.
func TestDifferential_watchesEndAsTheServerIs(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64() >> 20
	}
	n := *histories
	if testing.Short() {
		n = min(n, 200)
	}
	var total tally
	for i := range uint64(n) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("go test ./replica -run Differential -seed %d -histories 1", seed+i)
				}
			})
			h := newHistory(t, seed+i, &total)
			h.live()
			h.end()
		})
	}
	t.Logf("seed %d: %v", seed, &total)
	if n >= 2000 {
		total.check(t, n)
	}
}

// tally counts the steps of the histories.
type tally struct {
	resumed, ahead, bookmarks, lists, switched, events, restores, slow, restarts, earlier atomic.Int64

	mu      sync.Mutex
	expired map[string]int
}

func (c *tally) String() string {
	return fmt.Sprintf("%d watches resumed, %d of them ahead of the copy, %d bookmarks, %d lists, %d times at the "+
		"API server, %d events, %d restores, %d slow clients, %d restarts, %d watches resumed from before the "+
		"first list, expired for %v",
		c.resumed.Load(), c.ahead.Load(), c.bookmarks.Load(), c.lists.Load(), c.switched.Load(), c.events.Load(),
		c.restores.Load(), c.slow.Load(), c.restarts.Load(), c.earlier.Load(), c.expired)
}

func (c *tally) expire(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expired == nil {
		c.expired = map[string]int{}
	}
	c.expired[reason]++
}

// check requires enough of each step, so that the test remains significant.
func (c *tally) check(t *testing.T, n int) {
	t.Helper()
	for what, count := range map[string]int64{
		"resumed": c.resumed.Load() / 4, "ahead": c.ahead.Load() * 4, "bookmarks": c.bookmarks.Load() / 2,
		"switched": c.switched.Load(),
		"restores": c.restores.Load() * 10, "a gap": int64(c.expired["a gap"]) * 20,
		"a restore":  int64(c.expired["a restore"]) * 20,
		"the window": int64(c.expired["the window"]) * 20, "its age": int64(c.expired["its age"]) * 200,
		"another process": int64(c.expired["another process"]) * 200,
		"restarts":        c.restarts.Load() * 10,
		"earlier":         (c.earlier.Load() - int64(c.expired["the beginning"])) * 10,
	} {
		if count < int64(n) {
			t.Errorf("%s: hardly a test: %v", what, c)
		}
	}
	lost := 0
	for _, n := range c.expired {
		lost += n
	}
	if resumed := c.resumed.Load(); int64(lost) > resumed {
		t.Errorf("%d watches were resumed, and %d versions expired", resumed, lost)
	}
}

// chronicle is one random history.
type chronicle struct {
	t        *testing.T
	rng      *rand.Rand
	tally    *tally
	journals []*journal
	sites    []*site
	clients  []*diffClient
	// odd means that servers without protobuf have pods with an invalid specification.
	// Protobuf cannot contain those, so all clients use JSON.
	odd bool
	// small means that the logs hold only a few changes.
	small bool
	over  bool
}

// site is a replica of all clusters.
type site struct {
	fleet  *fleet.Fleet
	server *replica.Server
	copies []siteCopy
	// end ends the process.
	end func()
}

// siteCopy is the model of a site's copy of a cluster.
type siteCopy struct {
	// first is the version that the copy began with in its era, and seen the last version
	// that it is known to have had. formerly is the highest version before the last
	// restore, which was at restored.
	first, seen, formerly uint64
	restored              time.Time
	// gaps contain at least the ranges that lists have skipped, and lists is how many of
	// the journal's lists have been processed.
	gaps  [][2]uint64
	lists int
}

func newHistory(t *testing.T, seed uint64, total *tally) *chronicle {
	h := &chronicle{t: t, rng: rand.New(rand.NewPCG(seed, 7)), tally: total}
	h.small, h.odd = h.rng.IntN(6) == 0, h.rng.IntN(2) == 0
	for range 1 + h.rng.IntN(2) {
		j := newJournal(h.rng.IntN(3) == 0, h.rng.IntN(2) == 0)
		for range h.rng.IntN(6) {
			j.write(h.pod(j))
		}
		h.journals = append(h.journals, j)
	}
	sites := 1
	if h.rng.IntN(4) == 0 {
		sites = 2
	}
	for range sites {
		h.sites = append(h.sites, h.serve())
	}
	for _, s := range h.sites {
		if err := s.fleet.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.settle()
	t.Cleanup(func() {
		for _, c := range h.clients {
			c.stop()
		}
	})
	for i := range 3 + h.rng.IntN(3) {
		h.clients = append(h.clients, h.newClient(i))
	}
	return h
}

// serve starts a replica.
func (h *chronicle) serve() *site {
	var entries []fleet.Entry
	for i, j := range h.journals {
		entries = append(entries, fleet.Entry{
			Name:   clusterName(i),
			Config: &rest.Config{Host: "http://" + clusterName(i), Transport: j},
		})
	}
	clusters, err := directory.NewStatic(entries...)
	if err != nil {
		h.t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	opts := &fleet.Options{Resources: []string{"pods"}, History: 64 << 20, Fast: true, Logger: logger,
		Reflector: reflector.Options{PageSize: 3, ListOnly: h.rng.IntN(4) == 0}}
	if h.small {
		opts.Window = 3000
	}
	s := &site{copies: make([]siteCopy, len(h.journals))}
	if s.fleet, err = fleet.New(clusters, opts); err != nil {
		h.t.Fatal(err)
	}
	if s.server, err = replica.New(s.fleet, &replica.Options{Logger: logger}); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.fleet.Run(ctx) })
	running.Go(func() { _ = s.server.Run(ctx) })
	s.end = func() {
		cancel()
		running.Wait()
	}
	h.t.Cleanup(s.end)
	return s
}

func clusterName(i int) string { return fmt.Sprintf("c%d", i) }

// pod returns a random write. There are few names, so that pods are created, changed and
// deleted often.
func (h *chronicle) pod(j *journal) entry {
	e := entry{namespace: []string{"n", "m"}[h.rng.IntN(2)], name: string(rune('a' + h.rng.IntN(4)))}
	e.deleted = h.rng.IntN(3) == 0
	e.app = []string{"x", "x", "y", ""}[h.rng.IntN(4)]
	e.node = []string{"n1", "n2", ""}[h.rng.IntN(3)]
	e.odd = j.asJSON && h.odd && h.rng.IntN(4) == 0
	return e
}

// feed returns a site's state of a cluster.
func (s *site) feed(cluster int) *history.Moment {
	m, ok := s.fleet.Member(clusterName(cluster))
	if !ok {
		return nil
	}
	f, ok := m.Feed(schema.GroupResource{Resource: "pods"})
	if !ok {
		return nil
	}
	now, _ := f.Now() // nil before the first list
	return now
}

// settle lets all goroutines finish their work, and records the state of the copies.
func (h *chronicle) settle() {
	synctest.Wait()
	for _, s := range h.sites {
		for i := range s.copies {
			c, j, now := &s.copies[i], h.journals[i], s.feed(i)
			if now == nil {
				continue
			}
			if c.first == 0 {
				c.first = now.Version
			}
			j.mu.Lock()
			for _, n := range j.lists[c.lists:] {
				if n > c.seen {
					c.gaps = append(c.gaps, [2]uint64{c.seen, n})
				}
			}
			c.lists = len(j.lists)
			j.mu.Unlock()
			c.seen = now.Version
		}
	}
}

// live makes random steps.
func (h *chronicle) live() {
	for range 14 + h.rng.IntN(16) {
		h.settle()
		j := h.journals[h.rng.IntN(len(h.journals))]
		c := h.clients[h.rng.IntN(len(h.clients))]
		switch n := h.rng.IntN(100); {
		case n < 24:
			for range 1 + h.rng.IntN(4) {
				j.write(h.pod(j))
			}
		case n < 27:
			j.pass()
		case n < 32:
			j.bookmark()
		case n < 36:
			j.cut(false)
		case n < 40:
			h.outage(j)
		case n < 42:
			h.restore()
		case n < 46:
			h.restart()
		case n < 60:
			time.Sleep(time.Duration(h.rng.IntN(5000)) * time.Millisecond)
		case n < 66:
			time.Sleep(time.Duration(h.rng.IntN(100)) * time.Second)
		case n < 67:
			time.Sleep(6 * time.Minute)
		default:
			c.act()
		}
		if h.settle(); h.t.Failed() {
			return
		}
	}
}

// outage makes the copies fall behind, and then perhaps list again.
func (h *chronicle) outage(j *journal) {
	j.cut(true)
	for range 1 + h.rng.IntN(6) {
		j.write(h.pod(j))
		if h.rng.IntN(3) == 0 {
			j.pass()
		}
	}
	if h.rng.IntN(3) > 0 {
		j.forget()
	}
	for range 2 + h.rng.IntN(4) {
		h.clients[h.rng.IntN(len(h.clients))].act()
		h.settle()
		if h.rng.IntN(3) == 0 {
			j.write(h.pod(j))
		}
	}
	j.cut(false)
	time.Sleep(time.Duration(h.rng.IntN(3)) * 30 * time.Second)
}

// restart replaces a replica by a new process, whose copies begin with a list. The eras of the copies
// then begin anew, so it does nothing after a restore.
func (h *chronicle) restart() {
	if slices.ContainsFunc(h.journals, func(j *journal) bool { return j.era() > 0 }) {
		return
	}
	which := h.rng.IntN(len(h.sites))
	old := h.sites[which]
	h.sites[which] = h.serve()
	if err := h.sites[which].fleet.WaitForSync(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.settle()
	for _, c := range h.clients {
		if c.site == old {
			c.stop()
			c.site = h.sites[which]
		}
	}
	old.end()
	h.tally.restarts.Add(1)
}

// restore puts a server back to a version before those that all copies have seen, and
// waits until they notice: the protocol does not reveal a restored server that has
// meanwhile passed the old version.
func (h *chronicle) restore() {
	which := h.rng.IntN(len(h.journals))
	j := h.journals[which]
	behind := j.version
	for _, s := range h.sites {
		behind = min(behind, s.copies[which].seen)
	}
	if behind < 3 {
		return
	}
	to := behind - 1 - uint64(h.rng.IntN(min(int(behind)-2, 12)))
	j.restore(to)
	for range h.rng.IntN(int(behind - to)) {
		j.write(h.pod(j))
	}
	era := uint64(j.era())
	for waited := 0; ; waited++ {
		synctest.Wait()
		if !slices.ContainsFunc(h.sites, func(s *site) bool { return s.feed(which).State.Era() != era }) {
			break
		}
		// A restore between a check and the watch after it is noticed when the watch ends,
		// after ten minutes at most and the grace of the reflector.
		if waited > 1200 {
			h.t.Fatalf("the restore is not noticed after %d s", waited)
		}
		time.Sleep(time.Second)
	}
	for _, s := range h.sites {
		c, now := &s.copies[which], s.feed(which)
		*c = siteCopy{
			first:    now.Version,
			seen:     now.Version,
			formerly: max(c.formerly, c.seen),
			restored: time.Now(),
			lists:    len(j.lists),
		}
	}
	h.tally.restores.Add(1)
	// Versions from before the restore are soon used again.
	for range h.rng.IntN(8) {
		j.write(h.pod(j))
	}
}

// end lets all clients catch up, and compares their states with the model.
func (h *chronicle) end() {
	if h.t.Failed() {
		return
	}
	for _, j := range h.journals {
		j.cut(false)
		j.pass()
	}
	time.Sleep(2 * time.Minute)
	for _, j := range h.journals {
		j.bookmark()
	}
	h.settle()
	h.over = true
	for _, c := range h.clients {
		c.finish()
	}
}

// truth returns the state that a client with a selector sees of a cluster at a version of
// an era.
func (h *chronicle) truth(cluster, era int, version uint64, s *diffSelector) map[string]uint64 {
	state := map[string]uint64{}
	j := h.journals[cluster]
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, e := range j.at(era, version) {
		if s.matches(e) {
			state[clusterName(cluster)+"/"+key] = e.version
		}
	}
	return state
}

// reason returns why a client's version may have expired at a site, "" if it may not.
func (h *chronicle) reason(s *site, c *diffClient) string {
	if h.small {
		return "the window"
	}
	if c.cluster < 0 {
		switch {
		case c.home != s:
			return "another process"
		case time.Since(c.at) > 5*time.Minute:
			return "its age"
		}
		return ""
	}
	known, j := &s.copies[c.cluster], h.journals[c.cluster]
	switch {
	case c.era != int(s.feed(c.cluster).State.Era()), c.version <= known.formerly,
		known.seen <= known.formerly && c.version > known.seen:
		return "a restore"
	case c.version < known.first:
		return "the beginning"
	case slices.ContainsFunc(known.gaps, func(g [2]uint64) bool { return g[0] < c.version && c.version < g[1] }):
		return "a gap"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.eras[j.era()] {
		if e.version > c.version && time.Since(e.at) > 5*time.Minute {
			return "its age"
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

var (
	histories = flag.Int("histories", 300, "how many random histories to live through")
	firstSeed = flag.Uint64("seed", 0, "the first history's seed, 0 is a random one")
)

// TestChaos_copyEndsAsTheServerIs runs random histories: a server that is written to,
// forgets, vanishes and is restored, and every way in which requests can fail. The seed
// determines what happens to the reflector, but not the reflector's own random waits, so
// a failure may take a few runs to reproduce.
func TestChaos_copyEndsAsTheServerIs(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64() >> 20
	}
	n := *histories
	if testing.Short() {
		n = min(n, 50)
	}
	for i := range uint64(n) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("go test ./reflector -run Chaos -seed %d -histories 1", seed+i)
				}
			})
			newChaos(t, seed+i).live()
		})
	}
}

// chaos is a world and the state of its random history.
type chaos struct {
	*world
	rng *rand.Rand
	// on makes requests fail at random.
	on atomic.Bool
	// trouble counts events that may cause a list.
	trouble atomic.Int64
	// deaths counts how often the server lost each object.
	deaths map[string]int
	// eras has the length of changes at each restore of the server.
	eras []int
	runs int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	rng := rand.New(rand.NewPCG(seed, 1))
	opts := &reflector.Options{
		ListOnly: rng.IntN(3) == 0,
		PageSize: 2 + rng.Int64N(4),
		Silence:  time.Duration(70+rng.IntN(100)) * time.Second,
	}
	c := &chaos{rng: rng, deaths: map[string]int{}}
	c.world = newWorld(t, opts, &delta.Options[pod]{Capacity: 1 + rng.IntN(9)})
	c.grain = time.Second
	c.server.skip(1) // no server is at version 0
	c.server.mode = streaming(rng.IntN(3))
	c.server.marks = []time.Duration{0, 20 * time.Second, time.Minute}[rng.IntN(3)]
	// Faults are chosen under the server's lock, by a separate generator.
	faults, often := rand.New(rand.NewPCG(seed, 2)), rng.IntN(40)
	c.server.choose = func(k kind) fault {
		if !c.on.Load() || faults.IntN(100) >= often {
			return fault{}
		}
		c.trouble.Add(1)
		return randomFault(faults, k)
	}
	return c
}

func randomFault(rng *rand.Rand, k kind) fault {
	after := rng.IntN(6)
	errs := []error{
		errReset, internal, refused, expired, tooLarge, notServed, busy(time.Duration(rng.IntN(30)) * time.Second),
	}
	err := errs[rng.IntN(len(errs))]
	switch rng.IntN(8) {
	case 0:
		return fault{hang: true}
	case 1:
		return fault{deaf: true, after: after}
	case 2:
		return fault{pace: time.Duration(rng.IntN(40)) * time.Second}
	case 3, 4:
		if k == watches && rng.IntN(2) == 0 {
			err = io.EOF
		}
		return fault{cut: err, after: after}
	case 5:
		if k == watches {
			return fault{first: []item{unreadable(delta.Updated, "", "")}}
		}
	}
	return fault{err: err}
}

// live runs one history and then judges it.
func (c *chaos) live() {
	c.on.Store(true)
	c.start()
	c.runs = 1
	for range 20 + c.rng.IntN(60) {
		c.let(time.Duration(c.rng.ExpFloat64() * float64(15*time.Second)))
		c.step()
	}
	c.on.Store(false)
	c.server.appear()
	c.slow(0)
	c.untilCopied()
	c.let(30 * time.Minute)
	c.wantCopy()
	c.judge()
}

// delete deletes an object. Now and then the event cannot be read, or its key or version
// cannot be either.
func (c *chaos) delete(name string) {
	if c.rng.IntN(4) > 0 {
		c.server.del(name)
		return
	}
	c.trouble.Add(1)
	c.server.delUnseen(name)
	version := fmt.Sprint(c.server.at())
	c.server.send([]item{
		unreadable(delta.Deleted, name, version), unreadable(delta.Deleted, "", version),
		unreadable(delta.Deleted, "", ""),
	}[c.rng.IntN(3)])
}

// step makes one random thing happen.
func (c *chaos) step() {
	name := string(rune('a' + c.rng.IntN(8)))
	state := c.server.state()
	_, exists := state[name]
	switch roll := c.rng.IntN(100); {
	case c.server.absent:
		if c.rng.IntN(3) == 0 {
			c.server.appear()
		}
	case roll < 40:
		c.server.put(name, fmt.Sprint(c.rng.Int()))
	case roll < 60:
		if exists {
			c.deaths[name]++
			c.delete(name)
		}
	case roll < 65:
		c.server.skip(c.rng.IntN(5))
	case roll < 70:
		c.server.forget()
	case roll < 80:
		c.trouble.Add(1)
		c.server.send([]item{
			end,
			{err: errReset},
			{err: expired},
			{err: busy(0)},
			unreadable(delta.Updated, "", ""),
		}[c.rng.IntN(5)])
	case roll < 84:
		c.repeat(state)
	case roll < 88:
		c.trouble.Add(1)
		c.server.deafen()
	case roll < 91:
		c.slow(time.Duration(c.rng.IntN(200)) * time.Second)
	case roll < 94:
		c.trouble.Add(1)
		for name := range state {
			c.deaths[name]++
		}
		c.server.vanish()
	case roll < 97:
		c.stopRun()
		c.let(time.Duration(c.rng.IntN(100)) * time.Second)
		c.run()
		c.runs++
	default:
		c.restore()
	}
}

// repeat sends an event of an existing object once more. It does not repeat deletions:
// the queue would merge a real deletion that follows into the repeated one, and the store
// would accept neither.
func (c *chaos) repeat(state map[string]pod) {
	if len(c.server.log) == 0 {
		return
	}
	e := c.server.log[c.rng.IntN(len(c.server.log))]
	if _, exists := state[e.Object.Name]; exists && e.Type != delta.Deleted {
		c.server.send(item{event: e})
	}
}

func (c *chaos) slow(pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = pause
}

// restore sets the server back behind what the reflector has seen, and waits until the
// reflector has detected it before anything is written. Later the reflector could not
// detect it.
func (c *chaos) restore() {
	c.on.Store(false)
	c.slow(0)
	c.untilCopied()
	c.let(10 * time.Minute) // until no earlier changes are queued
	before, s := c.server.state(), c.Status()
	seen, err := strconv.Atoi(s.Version)
	if err != nil || seen < 2 {
		c.on.Store(true)
		return
	}
	c.mu.Lock()
	c.eras = append(c.eras, len(c.changes))
	c.mu.Unlock()
	c.trouble.Add(1)
	c.on.Store(true)
	c.server.restore(1 + c.rng.IntN(seen-1))
	after := c.server.state()
	for name := range before {
		if _, exists := after[name]; !exists {
			c.deaths[name]++
		}
	}
	c.until("restored", func() bool { return c.Status().Restores > s.Restores })
}

// judge checks all changes that the consumer received, and the number of requests.
func (c *chaos) judge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.mode == ignores {
		// A plain watch that was meant to be a stream may be opened and break off any
		// number of times before the reflector detects that, and sends the same events
		// each time.
		return
	}
	last, notified := map[string]int{}, map[string]int{}
	for i, change := range c.changes {
		if slices.Contains(c.eras, i) {
			clear(last)
		}
		switch {
		case change.Type == delta.Deleted:
			notified[change.Key]++
		case change.New.Version < last[change.Key]:
			c.t.Errorf("%s goes back from %d to %d", change.Key, last[change.Key], change.New.Version)
		default:
			last[change.Key] = change.New.Version
		}
	}
	for name, n := range notified {
		if n > c.deaths[name] {
			c.t.Errorf("%d deletions of %s, which was deleted %d times", n, name, c.deaths[name])
		}
	}
	expect.Equal(c.t, c.Status().Restores, uint64(len(c.eras)))
	if version := c.store.Snapshot().Version(); version > uint64(c.server.at()) {
		c.t.Errorf("the store is at %d, the server at %d", version, c.server.at())
	}
	// Every list has a reason. One reason may cost a stream that is ignored, a list that
	// expires half way, and a list.
	whole := 0
	for _, what := range c.server.got() {
		if !strings.HasPrefix(what, "watch") && !strings.Contains(what, "from") &&
			!strings.HasSuffix(what, "limit 1") && what != "served?" {
			whole++
		}
	}
	if most := 3 * (c.runs + int(c.trouble.Load())); whole > most {
		c.t.Errorf("%d lists and streams for %d runs and %d troubles", whole, c.runs, c.trouble.Load())
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/wire"
)

// chronicle writes ten changes a second to each of some feeds. Their versions are the
// time, in tenths of seconds.
type chronicle struct {
	t         *testing.T
	feeds     []*Feed
	informers []*watershed.Informer[*wire.Object]
	now       uint64
}

// write writes objects of about one size for some seconds, and calls check after each
// check of the history.
func (c *chronicle) write(seconds, size int, check func()) {
	blob := map[string]string{"blob": strings.Repeat("x", size)}
	for range seconds * 10 {
		c.now++
		for _, i := range c.informers {
			i.Write(updated(newPod(c.t, "a", c.now, blob)))
		}
		time.Sleep(time.Second / 10)
		synctest.Wait()
		if c.now%50 == 0 {
			check()
		}
	}
}

func (c *chronicle) bytes() (n int64) {
	for _, f := range c.feeds {
		n += f.log.Stats().Bytes
	}
	return n
}

// trim keeps the feeds within a bound.
func (c *chronicle) trim(ctx context.Context, bound int64) {
	objectlog.Trim(ctx, func() int64 { return bound }, func() (all []*fanout.Log[*wire.Object]) {
		for _, f := range c.feeds {
			all = append(all, f.log)
		}
		return all
	})
}

// remembers returns how many seconds of changes a feed has.
func (c *chronicle) remembers(f *Feed) int { return int(c.now-f.log.Oldest()) / 10 }

// TestHistory_goesByAge has feeds that hold less than the bound, then more, then less
// again.
func TestHistory_goesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 6_000_000
		c := &chronicle{t: t, now: 1}
		for range 2 {
			f, i := newTestFeed(t, 64<<20)
			c.feeds, c.informers = append(c.feeds, f), append(c.informers, i)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.trim(ctx, bound)
		}()
		// The log drops whole chunks: 6 seconds of changes each, here.
		began := c.now
		all := func(what string) func() {
			return func() {
				t.Helper()
				for _, f := range c.feeds {
					if n, want := c.remembers(f), min(300, int(c.now-began)/10); n < want || n > 300+7+5 {
						t.Fatalf("%s, at %d a feed goes back %d seconds, want %d", what, c.now, n, want)
					}
				}
				if n := c.bytes(); n > bound {
					t.Fatalf("%s, %d bytes are kept", what, n)
				}
			}
		}
		c.write(400, 200, all("below the bound"))

		least, most, rest := 300, int64(0), 10
		c.write(200, 5000, func() {
			rest--
			if rest > 0 {
				return // the age limit needs some rounds to adapt
			}
			most = max(most, c.bytes())
			for _, f := range c.feeds {
				least = min(least, c.remembers(f))
			}
		})
		t.Logf("above the bound feeds go back at least %d seconds, and %d bytes are kept", least, most)
		// A round of changes is added, and two chunks stay that are not full.
		if least < 20 || most > bound*5/4 {
			t.Errorf("feeds go back %d seconds, and %d bytes are kept", least, most)
		}
		if a, b := c.remembers(c.feeds[0]), c.remembers(c.feeds[1]); a != b {
			t.Errorf("the feeds go back %d and %d seconds", a, b)
		}

		// Below the bound again, no change is dropped before objectlog.MaxAge.
		for _, f := range c.feeds {
			f.log.Trim(0)
		}
		began = c.now
		c.write(400, 200, all("below the bound again"))
		cancel()
		<-done
	})
}

// TestHistory_recoversFromABurst has far too many changes arrive at once.
func TestHistory_recoversFromABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &chronicle{t: t, now: 1}
		f, i := newTestFeed(t, 64<<20)
		c.feeds, c.informers = []*Feed{f}, []*watershed.Informer[*wire.Object]{i}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.trim(ctx, 1000)
		}()
		c.write(5, 1<<20, func() {})
		time.Sleep(2 * objectlog.TrimEvery)
		synctest.Wait()
		if n := c.bytes(); n > 1000 {
			t.Errorf("%d bytes are kept", n)
		}
		i.Write(updated(newPod(t, "b", 1000, nil)))
		time.Sleep(objectlog.MaxAge)
		synctest.Wait()
		if n := f.log.Stats().Changes; n != 1 {
			t.Errorf("%d changes are kept that are not too old", n)
		}
		time.Sleep(2 * objectlog.TrimEvery)
		synctest.Wait()
		if n := f.log.Stats().Changes; n != 0 {
			t.Errorf("%d changes are kept that are too old", n)
		}
		cancel()
		<-done
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pod struct{ labels []string }

var labels = fanout.Dimension[*pod]{Name: "label", Values: func(p *pod) []fanout.Value {
	var vs []fanout.Value
	for _, label := range p.labels {
		vs = append(vs, fanout.ValueOf(label))
	}
	return vs
}}

// change returns an update of key at a revision, from one set of labels to another.
func change(revision uint64, key string, from, to []string) store.Change[*pod] {
	return store.Change[*pod]{
		Type: delta.Updated, Key: key, Old: &pod{from}, New: &pod{to}, Revision: revision, Version: revision * 10,
	}
}

func added(revision uint64, key string, labels ...string) store.Change[*pod] {
	return store.Change[*pod]{Type: delta.Added, Key: key, New: &pod{labels}, Revision: revision}
}

func publish(l *fanout.Log[*pod], changes ...store.Change[*pod]) { l.Publish(changes) }

func cursor(t *testing.T, l *fanout.Log[*pod], after uint64, i fanout.Interest) *fanout.Cursor[*pod] {
	t.Helper()
	c, err := l.Cursor(after, i)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// next returns the revisions of the next batch.
func next(t *testing.T, c *fanout.Cursor[*pod]) []uint64 {
	t.Helper()
	batch, err := c.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revisions(batch)
}

func revisions(batch []store.Change[*pod]) []uint64 {
	var rs []uint64
	for _, c := range batch {
		rs = append(rs, c.Revision)
	}
	return rs
}

// rest returns everything that a cursor can read without waiting.
func rest(t *testing.T, c *fanout.Cursor[*pod]) []uint64 {
	t.Helper()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	var rs []uint64
	for {
		batch, err := c.Next(done)
		if errors.Is(err, context.Canceled) {
			return rs
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, revisions(batch)...)
	}
}

func TestCursor_startsWhereItIsTold(t *testing.T) {
	l := fanout.New[*pod](nil)
	for r := uint64(101); r <= 110; r++ { // a log may begin late
		publish(l, added(r, "a/1"))
	}
	expect.Equal(t, rest(t, cursor(t, l, 107, fanout.Everything())), []uint64{108, 109, 110})
	expect.Equal(t, len(rest(t, cursor(t, l, 100, fanout.Everything()))), 10)
	c := cursor(t, l, 110, fanout.Everything())
	expect.Equal(t, rest(t, c), nil)
	publish(l, added(111, "a/1"))
	expect.Equal(t, rest(t, c), []uint64{111})
	expect.Equal(t, c.Position(), uint64(111))
	// Changes before the beginning of the log have expired like those it has dropped.
	if _, err := cursor(t, l, 99, fanout.Everything()).Next(t.Context()); !errors.Is(err, fanout.ErrExpired) {
		t.Errorf("Next before the beginning: %v, want ErrExpired", err)
	}
}

func TestCursor_aheadOfTheLogSkipsWhatItsSnapshotHas(t *testing.T) {
	// A store publishes its snapshot before the log has the changes of the batch.
	for _, i := range []fanout.Interest{fanout.Everything(), fanout.Namespace("a")} {
		l := fanout.New[*pod](nil)
		publish(l, added(1, "a/1"))
		c := cursor(t, l, 3, i)
		expect.Equal(t, rest(t, c), nil)
		publish(l, added(2, "a/2"), added(3, "a/3"))
		expect.Equal(t, rest(t, c), nil)
		publish(l, added(4, "a/4"))
		expect.Equal(t, rest(t, c), []uint64{4})
	}
}

func TestInterest_matches(t *testing.T) {
	l := fanout.New(&fanout.Options[*pod]{Dimensions: []fanout.Dimension[*pod]{labels}})
	publish(l,
		added(1, "a/1", "red"),
		change(2, "a/2", []string{"red"}, []string{"blue"}),
		change(3, "b/1", []string{"blue"}, []string{"blue"}),
		store.Change[*pod]{Type: delta.Deleted, Key: "b/2", Old: &pod{[]string{"red"}}, Revision: 4},
		added(5, "node"),
		added(6, "ab/1"),
	)
	for _, test := range []struct {
		interest fanout.Interest
		want     []uint64
		text     string
	}{
		{fanout.Everything(), []uint64{1, 2, 3, 4, 5, 6}, "everything"},
		{fanout.Namespace("a"), []uint64{1, 2}, "namespace a"},
		{fanout.Namespace("b"), []uint64{3, 4}, "namespace b"},
		{fanout.Namespace("node"), nil, "namespace node"},
		{fanout.Key("b/1"), []uint64{3}, "key b/1"},
		{fanout.Key("node"), []uint64{5}, "key node"},
		{fanout.In("label", "red"), []uint64{1, 2, 4}, "label red"}, // also by the old state
		{fanout.In("label", "blue"), []uint64{2, 3}, "label blue"},
		{fanout.In("label", "none"), nil, "label none"},
	} {
		expect.Equal(t, rest(t, cursor(t, l, 0, test.interest)), test.want)
		expect.Equal(t, test.interest.String(), test.text)
	}
	if _, err := l.Cursor(0, fanout.In("node", "x")); !errors.Is(err, fanout.ErrNoDimension) ||
		!strings.Contains(err.Error(), "node") {
		t.Errorf("unknown dimension: %v, want ErrNoDimension", err)
	}
}

func TestWait_onlyTheConcernedAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Dimensions: []fanout.Dimension[*pod]{labels}})
		got := make(chan string, 10)
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(i fanout.Interest) {
			c := cursor(t, l, 0, i)
			go func() {
				if batch, err := c.Next(ctx); err == nil {
					got <- fmt.Sprint(i, " ", revisions(batch))
				}
			}()
		}
		for _, i := range []fanout.Interest{
			fanout.Everything(), fanout.Namespace("a"), fanout.Namespace("b"), fanout.Key("a/1"),
			fanout.Key("a/2"), fanout.In("label", "red"), fanout.In("label", "red"), fanout.In("label", "blue"),
		} {
			wait(i)
		}
		woken := func() (words []string) {
			synctest.Wait()
			for len(got) > 0 {
				words = append(words, <-got)
			}
			return words
		}
		expect.Equal(t, woken(), nil)
		expect.Equal(t, l.Stats().Waiting, 8)
		publish(l, added(1, "c/1"))
		expect.Equal(t, woken(), []string{"everything [1]"})
		publish(l, added(2, "c/1", "red"))
		expect.Equal(t, woken(), []string{"label red [2]", "label red [2]"})
		publish(l, added(3, "b/1"), added(4, "b/2"))
		expect.Equal(t, woken(), []string{"namespace b [3 4]"})
		expect.Equal(t, l.Stats().Waiting, 4)
		publish(l, change(5, "a/2", []string{"blue"}, nil))
		expect.Equal(t, len(woken()), 3) // its namespace, its key, its old label
		expect.Equal(t, l.Stats().Waiting, 1)
		cancel()
		synctest.Wait()
		expect.Equal(t, l.Stats().Waiting, 0)
	})
}

func TestWait_readerOfOtherThingsNeverFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Count: 10})
		c := cursor(t, l, 0, fanout.Namespace("quiet"))
		read := make(chan []uint64)
		go func() { read <- next(t, c) }()
		synctest.Wait()
		r := uint64(1)
		for ; r <= 1000; r++ {
			publish(l, added(r, "busy/1"))
		}
		publish(l, added(r, "quiet/1"))
		expect.Equal(t, <-read, []uint64{1001})

		// Nor does a reader whose context ended, up to that moment.
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() {
			_, err := c.Next(ctx)
			errs <- err
		}()
		synctest.Wait()
		for r++; r <= 2000; r++ {
			publish(l, added(r, "busy/1"))
		}
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("Next: %v, want the context's error", err)
		}
		expect.Equal(t, c.Position(), uint64(2000))
	})
}

func TestWindow_boundedByCount(t *testing.T) {
	for _, count := range []int{1, 7, 64, 1000} {
		l := fanout.New(&fanout.Options[*pod]{Count: count})
		slow := cursor(t, l, 0, fanout.Everything())
		for r := uint64(1); r <= 5000; r++ {
			publish(l, added(r, "a/1"))
			if n := l.Stats().Changes; n > count {
				t.Fatalf("%d changes in a window of %d", n, count)
			}
		}
		// The window is full, except for the chunk that is being filled.
		if n := l.Stats().Changes; n < count*7/8 {
			t.Errorf("%d changes in a window of %d", n, count)
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("slow reader: %v, want ErrExpired", err)
		}
		expect.Equal(t, l.Stats().Expired, uint64(1))
		expect.Equal(t, l.Stats().Last, uint64(5000))
		expect.Equal(t, len(rest(t, cursor(t, l, l.Stats().After, fanout.Everything()))), l.Stats().Changes)
	}
}

func TestWindow_boundedByBytes(t *testing.T) {
	l := fanout.New(&fanout.Options[*pod]{Bytes: 1000, Size: func(c store.Change[*pod]) int { return len(c.Key) }})
	for r := uint64(1); r <= 500; r++ {
		publish(l, added(r, strings.Repeat("k", int(r%40)+1)))
		s := l.Stats()
		if s.Bytes > 1000 {
			t.Fatalf("%d bytes in a window of 1000", s.Bytes)
		}
	}
	if s := l.Stats(); s.Bytes < 700 {
		t.Errorf("%d bytes in a window of 1000: too little is kept", s.Bytes)
	}
	// A change that is larger than the window is still delivered.
	at := l.Stats().Last
	publish(l, added(at+1, strings.Repeat("k", 5000)))
	expect.Equal(t, rest(t, cursor(t, l, at, fanout.Everything())), []uint64{at + 1})
}

func TestWindow_boundedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Age: time.Minute})
		publish(l, added(1, "a/1"))
		c := cursor(t, l, 0, fanout.Everything())
		time.Sleep(time.Minute)
		l.Expire()
		expect.Equal(t, l.Stats().Changes, 1)
		time.Sleep(time.Second)
		l.Expire()
		expect.Equal(t, l.Stats().Changes, 0)
		if _, err := c.Next(t.Context()); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("Next: %v, want ErrExpired", err)
		}
		// An emptied window continues at its position.
		up := cursor(t, l, 1, fanout.Everything())
		expect.Equal(t, rest(t, up), nil)
		publish(l, added(2, "a/1"))
		expect.Equal(t, rest(t, up), []uint64{2})
	})
}

func TestCut_expiresEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New(&fanout.Options[*pod]{Dimensions: []fanout.Dimension[*pod]{labels}})
		publish(l, added(1, "a/1"), added(2, "a/2"))
		errs := make(chan error, 10)
		interests := []fanout.Interest{fanout.Everything(), fanout.Namespace("z"), fanout.In("label", "red")}
		for _, i := range interests {
			c := cursor(t, l, 2, i)
			go func() {
				_, err := c.Next(t.Context())
				errs <- err
			}()
		}
		late := cursor(t, l, 1, fanout.Everything())
		synctest.Wait()
		l.Cut(5)
		for range interests {
			if err := <-errs; !errors.Is(err, fanout.ErrExpired) {
				t.Errorf("a waiting reader received %v", err)
			}
		}
		if _, err := late.Next(t.Context()); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("a reader that is behind received %v", err)
		}
		s := l.Stats()
		expect.Equal(t, []any{s.After, s.Last, s.Changes, s.Bytes, s.Waiting},
			[]any{uint64(5), uint64(5), 0, int64(0), 0})
		c := cursor(t, l, 5, fanout.Everything())
		publish(l, added(6, "a/3"))
		l.Close()
		l.Cut(7)
		expect.Equal(t, next(t, c), []uint64{6})
		if _, err := c.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("a reader of a closed log received %v", err)
		}
	})
}

func TestClose_afterWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fanout.New[*pod](nil)
		publish(l, added(1, "a/1"))
		behind, waiting := cursor(t, l, 0, fanout.Everything()), cursor(t, l, 1, fanout.Namespace("a"))
		errs := make(chan error)
		go func() {
			_, err := waiting.Next(t.Context())
			errs <- err
		}()
		synctest.Wait()
		l.Close()
		l.Close()
		if err := <-errs; !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("waiting reader: %v, want ErrClosed", err)
		}
		publish(l, added(2, "a/1")) // ignored: the log is closed
		expect.Equal(t, next(t, behind), []uint64{1})
		if _, err := behind.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("reader at the end: %v, want ErrClosed", err)
		}
	})
}

func TestSlowReaders_costNoMemory(t *testing.T) {
	const object = 4 << 10
	type blob struct{ _ [object]byte }
	l := fanout.New(&fanout.Options[*blob]{Count: 1000})
	var cursors []*fanout.Cursor[*blob]
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for r := uint64(1); r <= 20_000; r++ {
		l.Publish([]store.Change[*blob]{{Type: delta.Added, Key: "a/1", New: new(blob), Revision: r}})
		if r%10 == 0 { // 2,000 readers stop at 2,000 different places
			c, err := l.Cursor(r-1, fanout.Everything())
			if err != nil {
				t.Fatal(err)
			}
			cursors = append(cursors, c)
		}
	}
	grown := heap() - before
	if limit := int64(1000*object + 4<<20); grown > limit {
		t.Errorf("heap grew by %d bytes beside slow readers, want at most %d", grown, limit)
	}
	runtime.KeepAlive(cursors)
	runtime.KeepAlive(l)
}

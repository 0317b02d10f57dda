// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress shows how far one build is: in place on a terminal, as a line every ten
// seconds elsewhere.
type progress struct {
	out      *os.File
	what     string
	start    time.Time
	terminal bool

	mu    sync.Mutex // guards the two below
	total int        // packages in all; 0 until it is known
	count int        // packages compiled

	stop   chan struct{}
	ticker sync.WaitGroup
}

func newProgress(out *os.File, what string) *progress {
	p := &progress{out: out, what: what, start: time.Now(), stop: make(chan struct{})}
	if info, err := out.Stat(); err == nil {
		p.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	every := 10 * time.Second
	if p.terminal {
		every = time.Second
	}
	p.ticker.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.show()
			}
		}
	})
	return p
}

// of sets the number of packages, once the sources have been downloaded.
func (p *progress) of(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

func (p *progress) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	doing := fmt.Sprintf("%d of at most %d packages", p.count, p.total)
	switch {
	case p.total == 0:
		doing = "getting the sources"
	case p.count == 0:
		doing = fmt.Sprintf("looking which of %d packages are compiled already", p.total)
	}
	line := fmt.Sprintf("%s: %s, %s", p.what, doing, p.elapsed())
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// close ends the reports. It may be called after done.
func (p *progress) close() {
	select {
	case <-p.stop:
		return
	default:
	}
	close(p.stop)
	p.ticker.Wait()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *progress) done() {
	p.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%s: built in %s (%d packages compiled, %d were compiled before)\n",
		p.what, p.elapsed(), p.count, max(0, p.total-p.count))
}

func (p *progress) elapsed() time.Duration {
	return time.Since(p.start).Round(time.Second)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
)

const (
	// rateVariable is for other changes per second than 10,000.
	rateVariable = "WATERSHED_RATE"
	// tapeVariable is where the subject finds its watch.
	tapeVariable = "WATERSHED_BENCH_TAPE"
	// warmUp is how long changes flow before anything is measured.
	warmUp = 5 * time.Second
	// grace is how long the last change may be under way.
	grace = time.Minute
)

// churnReading is what a process finds while changes flow.
type churnReading struct {
	// P50, P99 and Max are of the times from when a change was due to when the
	// reader was told of it.
	P50, P99, Max time.Duration
	// CPU is how many processors were busy, on average.
	CPU float64
	// Early and Late are the live heap after the warm-up and at the end.
	Early, Late uint64
	// Missed is how many changes the reader was told of as differences, because it
	// had fallen behind.
	Missed int
}

// taker begins to follow a watch and returns when it has the state. It calls told
// with the version of every change.
type taker func(ctx context.Context, body io.Reader, n int, told func(version uint64)) error

var churnTrial = trial[churnReading]{
	name: "churn",
	subjects: []subject[churnReading]{
		{name: "ours packed", runs: 3, measure: takeTyped(watershed.Packed).measure},
		{name: "ours packed keys", runs: 3, measure: taker(takeKeys).measure},
		{name: "ours fast", runs: 3, measure: takeTyped(watershed.Fast).measure},
		{name: "client-go", runs: 3, measure: taker(takeClientGo).measure},
	},
	order: func(r churnReading) float64 { return r.P99.Seconds() },
}

// churnSize is how much of what there is.
type churnSize struct {
	pods, seconds int
	pace          pace
}

// newChurnSize is the whole benchmark, or what the environment asks for.
func newChurnSize() (c churnSize, err error) {
	if c.pods, err = variable(podsVariable, 100_000); err != nil {
		return c, err
	}
	if c.seconds, err = variable(secondsVariable, 30); err != nil {
		return c, err
	}
	rate, err := variable(rateVariable, 10_000)
	if c.pace = pace(rate * int(beat) / int(time.Second)); c.pace < 1 && err == nil {
		err = fmt.Errorf("%s=%d is less than one change every %v", rateVariable, rate, beat)
	}
	return c, err
}

// warming and measured are how many changes there are of each.
func (c churnSize) warming() int  { return c.pace.in(warmUp) }
func (c churnSize) measured() int { return c.pace.in(time.Duration(c.seconds) * time.Second) }

// String is for headings.
func (c churnSize) String() string {
	return fmt.Sprintf("%s pods, %s changes a second", thousands(strconv.Itoa(c.pods)), thousands(strconv.Itoa(c.pace.in(time.Second))))
}

// benchChurn measures what 10,000 changes a second of 100,000 pods cost, and how
// long they take to the handler.
func benchChurn(out io.Writer) error {
	if done, err := churnTrial.isSubject(out); done {
		return err
	}
	size, err := newChurnSize()
	if err != nil {
		return err
	}
	t, err := newTape(size.pods)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	played := make(chan struct{})
	var player float64
	go func() {
		defer close(played)
		player = serveTape(listener, t, size)
	}()
	median, err := churnTrial.run(context.Background(), tapeVariable+"="+listener.Addr().String())
	_ = listener.Close() // ends the player
	<-played
	if err != nil {
		return err
	}
	r := &report{
		name: "churn",
		heading: fmt.Sprintf("%v of random ones, %d s after %.0f s of warm-up, one reader; %s. "+
			"The watch is written by another process, which takes %.2f processors.", size, size.seconds, warmUp.Seconds(), churnTrial.repeated(), player),
		columns: []string{"reader", "p50, ms", "p99, ms", "max, ms", "CPU, processors", "live heap, MB", "growth, MB", "told together"},
		figure:  figure{title: size.String()},
	}
	p50, p99 := panel{title: "latency p50, ms"}, panel{title: "latency p99, ms"}
	cpu, heap := panel{title: "CPU, processors"}, panel{title: "live heap, MB"}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	growth := func(m churnReading) float64 { return (float64(m.Late) - float64(m.Early)) / 1e6 }
	for _, s := range []struct {
		name string
		bar  bar
	}{
		{"ours packed", bar{"Watershed, packed", oursColour}},
		{"ours packed keys", bar{"Watershed, packed, keys only", oursColour}},
		{"ours fast", bar{"Watershed, fast", oursPale}},
		{"client-go", bar{"client-go, typed", clientGoColour}},
	} {
		m := median[s.name]
		cells := []string{fmt.Sprintf("%.2f", ms(m.P50)), fmt.Sprintf("%.1f", ms(m.P99)), fmt.Sprintf("%.0f", ms(m.Max)), fmt.Sprintf("%.2f", m.CPU), megabytes(float64(m.Late))}
		r.row(slices.Concat([]string{s.bar.name}, cells, []string{fmt.Sprintf("%+.0f", growth(m)), strconv.Itoa(m.Missed)})...)
		r.figure.subjects = append(r.figure.subjects, s.bar)
		p50.add(ms(m.P50), cells[0])
		p99.add(ms(m.P99), cells[1])
		cpu.add(m.CPU, cells[3])
		heap.add(float64(m.Late)/1e6, thousands(cells[4]))
	}
	r.figure.panels = []panel{p50, p99, cpu, heap}
	if err := r.write(out); err != nil {
		return err
	}
	ours, theirs := median["ours packed"], median["client-go"]
	fmt.Fprintf(out, "\nchurn: p99-ms ours=%.1f client-go=%.1f cpu ours=%.2f client-go=%.2f heap-growth=%.1f\n",
		ms(ours.P99), ms(theirs.P99), ours.CPU, theirs.CPU, growth(ours))
	return nil
}

// serveTape plays the tape to one reader after the other until the listener is
// closed. It returns the most that a whole play took of a processor.
func serveTape(listener net.Listener, t *tape, size churnSize) float64 {
	var most float64
	for {
		conn, err := listener.Accept()
		if err != nil {
			return most
		}
		if used, err := t.play(conn, size.pace, size.warming(), size.measured()); err != nil {
			fmt.Fprintf(os.Stderr, "the reader of the tape is gone: %v\n", err)
		} else {
			most = max(most, used)
			_, _ = io.Copy(io.Discard, conn) // until the reader has had all
		}
		_ = conn.Close()
	}
}

// measure follows the tape in a process of its own.
func (take taker) measure(ctx context.Context) (churnReading, error) {
	size, err := newChurnSize()
	if err != nil {
		return churnReading{}, err
	}
	conn, err := net.Dial("tcp4", os.Getenv(tapeVariable))
	if err != nil {
		return churnReading{}, err
	}
	// The end of the process closes it: before, its end would be news to the reader.
	warming := newDeliveries(firstVersion+size.pods, size.warming(), size.pace)
	measured := newDeliveries(warming.first+size.warming(), size.measured(), size.pace)
	told := func(version uint64) {
		if int(version) < measured.first {
			warming.told(version)
		} else {
			measured.told(version)
		}
	}
	// The buffer is as an HTTP client has one.
	if err := take(ctx, bufio.NewReaderSize(conn, 32<<10), size.pods, told); err != nil {
		return churnReading{}, err
	}
	runtime.GC()
	time.Sleep(2 * time.Second) // what the state leaves to do
	if _, err := warming.flow(conn); err != nil {
		return churnReading{}, err
	}
	// Nothing flows now: what is found is in use, at both ends, and nobody is
	// delayed by looking for it.
	var r churnReading
	runtime.GC()
	r.Early = liveHeap()
	began, used := time.Now(), cpuTime()
	if r.Missed, err = measured.flow(conn); err != nil {
		return r, err
	}
	r.CPU = (cpuTime() - used).Seconds() / time.Since(began).Seconds()
	runtime.GC()
	r.Late = liveHeap()
	slices.Sort(measured.lags)
	n := len(measured.lags)
	r.P50, r.P99, r.Max = measured.lags[n/2], measured.lags[n*99/100], measured.lags[n-1]
	return r, nil
}

// deliveries are the changes that a reader was told of.
type deliveries struct {
	// first is the version of the first change, which was due at start.
	first int
	pace  pace
	start atomic.Pointer[time.Time]
	count atomic.Int64
	lags  []time.Duration
	// last is closed when the last change was delivered.
	last chan struct{}
}

func newDeliveries(first, n int, p pace) *deliveries {
	return &deliveries{first: first, pace: p, lags: make([]time.Duration, n), last: make(chan struct{})}
}

// flow lets the changes begin and waits until the last was delivered. A reader that
// falls far behind is told of some changes together: they count as delivered when all
// are. It returns how many those are.
func (d *deliveries) flow(conn io.Writer) (missed int, err error) {
	start := time.Now().Add(50 * time.Millisecond)
	d.start.Store(&start)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(start.UnixNano()))); err != nil {
		return 0, err
	}
	select {
	case <-d.last:
	case <-time.After(time.Until(d.pace.due(start, len(d.lags))) + grace):
		return 0, fmt.Errorf("did not keep up: told of %d of %d changes %v after the last was due", d.count.Load(), len(d.lags), grace)
	}
	for n := d.count.Load(); ; n = d.count.Load() {
		time.Sleep(100 * time.Millisecond)
		if d.count.Load() == n {
			break
		}
	}
	for k := range d.lags {
		if d.lags[k] == 0 {
			d.lags[k] = time.Since(d.pace.due(start, k))
			missed++
		}
	}
	return missed, nil
}

// told counts a change. The time begins when the change was due, not when it was
// sent: who lets the sender wait is not forgiven. One goroutine calls it.
func (d *deliveries) told(version uint64) {
	k := int(version) - d.first
	d.lags[k] = time.Since(d.pace.due(*d.start.Load(), k))
	d.count.Add(1)
	if k == len(d.lags)-1 {
		close(d.last)
	}
}

// compare is what a handler does with a change: it looks at both states.
func compare(old, now *corev1.Pod) uint64 {
	if old.Namespace != now.Namespace || old.Name != now.Name || old.ResourceVersion >= now.ResourceVersion || now.Status.Phase != corev1.PodRunning {
		panic("not a new state of the same pod")
	}
	version, err := strconv.ParseUint(now.ResourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	return version
}

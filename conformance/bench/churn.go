// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
)

const (
	// streamVariable is the address of the watch that a subject reads.
	streamVariable = "WATERSHED_BENCH_STREAM"
	// warmUp is how long changes are read before the measurement.
	warmUp = 5 * time.Second
)

// churnReading is the result that a process has measured of itself.
type churnReading struct {
	// P50, P99 and Max are latencies, from when a change was due to when the reader
	// received it.
	P50, P99, Max time.Duration
	// CPU is how many processors were busy, on average.
	CPU float64
	// Early and Late are the live heap after the warm-up and at the end.
	Early, Late uint64
	// Missed is how many changes the reader received as differences, because it had
	// fallen behind.
	Missed int
}

var churnTrial = harness.Trial[churnReading]{
	Name: "churn",
	Subjects: []harness.Subject[churnReading]{
		{Name: "ours packed", Runs: 3, Measure: measureChurn(churnTyped(watershed.Packed))},
		{Name: "ours packed keys", Runs: 3, Measure: measureChurn(churnKeys)},
		{Name: "ours fast", Runs: 3, Measure: measureChurn(churnTyped(watershed.Fast))},
		{Name: "client-go", Runs: 3, Measure: measureChurn(churnClientGo)},
	},
	Order: func(r churnReading) float64 { return r.P99.Seconds() },
}

// churnSize is the size of the benchmark.
type churnSize struct {
	pods    int
	seconds int
	pace    harness.Pace
}

// newChurnSize returns the size from the environment, which defaults to the whole
// benchmark.
func newChurnSize() (c churnSize, err error) {
	if c.pods, err = harness.EnvInt(harness.EnvPods, 100_000); err != nil {
		return c, err
	}
	if c.seconds, err = harness.EnvInt(harness.EnvSeconds, 30); err != nil {
		return c, err
	}
	rate, err := harness.EnvInt(harness.EnvRate, 10_000)
	c.pace = harness.Pace(rate * int(harness.PaceInterval) / int(time.Second))
	if c.pace < 1 && err == nil {
		err = fmt.Errorf("%s=%d is less than one change every %v", harness.EnvRate, rate, harness.PaceInterval)
	}
	return c, err
}

// warming returns how many changes there are before the measurement.
func (c churnSize) warming() int { return c.pace.Count(warmUp) }

// measured returns how many changes are measured.
func (c churnSize) measured() int { return c.pace.Count(time.Duration(c.seconds) * time.Second) }

// String returns the size for headings.
func (c churnSize) String() string {
	return fmt.Sprintf("%s pods, %s changes a second", harness.Thousands(strconv.Itoa(c.pods)), harness.Thousands(strconv.Itoa(c.pace.Count(time.Second))))
}

// benchChurn measures the cost of 10,000 changes a second of 100,000 pods, and their
// latency until the handler is called.
func benchChurn(out io.Writer) error {
	size, median, writer, err := runChurn(&churnTrial, out)
	if median == nil || err != nil {
		return err
	}
	if err := churnReport(size, writer, median).Write(out); err != nil {
		return err
	}
	ours, theirs := median["ours packed"], median["client-go"]
	fmt.Fprintf(out, "\nchurn: p99-ms ours=%.1f client-go=%.1f cpu ours=%.2f client-go=%.2f heap-growth=%.1f\n",
		inMilliseconds(ours.P99), inMilliseconds(theirs.P99), ours.CPU, theirs.CPU, ours.growth())
	return nil
}

// runChurn runs a trial whose subjects read the watch of the benchmark, and returns its size,
// its results, and how many processors writing the watch took. In the process of a subject
// it prints the result of that, and median is nil.
func runChurn[R any](t *harness.Trial[R], out io.Writer) (size churnSize, median map[string]R, writer float64, err error) {
	if done, err := t.RunAsSubject(out); done {
		return size, nil, 0, err
	}
	if size, err = newChurnSize(); err != nil {
		return size, nil, 0, err
	}
	median, writer, err = runWithStream(t, size)
	return size, median, writer, err
}

// runWithStream runs a trial whose subjects read the watch of the benchmark, one after the
// other. It also returns how many processors writing the watch took.
func runWithStream[R any](t *harness.Trial[R], size churnSize) (median map[string]R, writer float64, err error) {
	stream, err := harness.NewStream(size.pods)
	if err != nil {
		return nil, 0, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer = stream.Serve(listener, size.pace, size.warming(), size.measured())
	}()
	median, err = t.Run(context.Background(), streamVariable+"="+listener.Addr().String())
	_ = listener.Close() // ends Serve
	<-written
	return median, writer, err
}

func inMilliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// growth returns by how many megabytes the live heap has grown.
func (r churnReading) growth() float64 { return (float64(r.Late) - float64(r.Early)) / 1e6 }

// churnReport returns the table and the figure. writer is how many processors writing
// the watch took.
func churnReport(size churnSize, writer float64, median map[string]churnReading) *harness.Report {
	r := &harness.Report{
		Name: "churn",
		Heading: fmt.Sprintf("%v of random ones, %d s after %.0f s of warm-up, one reader; %s. "+
			"The watch is written by another process, which takes %.2f processors.", size, size.seconds, warmUp.Seconds(), churnTrial.Repetitions(), writer),
		Columns: []string{"reader", "p50, ms", "p99, ms", "max, ms", "CPU, processors", "live heap, MB", "growth, MB", "merged"},
		Figure:  harness.Figure{Title: size.String()},
	}
	p50, p99 := harness.Panel{Title: "latency p50, ms"}, harness.Panel{Title: "latency p99, ms"}
	cpu, heap := harness.Panel{Title: "CPU, processors"}, harness.Panel{Title: "live heap, MB"}
	for _, s := range []struct {
		subject string
		bar     harness.Bar
	}{
		{"ours packed", harness.Bar{Name: "Watershed, packed", Colour: harness.ColourOurs}},
		{"ours packed keys", harness.Bar{Name: "Watershed, packed, keys only", Colour: harness.ColourOurs}},
		{"ours fast", harness.Bar{Name: "Watershed, fast", Colour: harness.ColourOursPale}},
		{"client-go", harness.Bar{Name: "client-go, typed", Colour: harness.ColourClientGo}},
	} {
		m := median[s.subject]
		cells := []string{
			fmt.Sprintf("%.2f", inMilliseconds(m.P50)), fmt.Sprintf("%.1f", inMilliseconds(m.P99)), fmt.Sprintf("%.0f", inMilliseconds(m.Max)),
			fmt.Sprintf("%.2f", m.CPU), harness.Megabytes(float64(m.Late)),
		}
		r.Row(slices.Concat([]string{s.bar.Name}, cells, []string{fmt.Sprintf("%+.0f", m.growth()), strconv.Itoa(m.Missed)})...)
		r.Figure.Subjects = append(r.Figure.Subjects, s.bar)
		p50.Add(inMilliseconds(m.P50), cells[0])
		p99.Add(inMilliseconds(m.P99), cells[1])
		cpu.Add(m.CPU, cells[3])
		heap.Add(float64(m.Late)/1e6, harness.Thousands(cells[4]))
	}
	r.Figure.Panels = []harness.Panel{p50, p99, cpu, heap}
	return r
}

// measureChurn returns the measurement of a reader in this process.
func measureChurn(read churnReader) func(context.Context) (churnReading, error) {
	return func(ctx context.Context) (churnReading, error) {
		size, err := newChurnSize()
		if err != nil {
			return churnReading{}, err
		}
		// The end of the process closes the connection. The reader must not see its end.
		conn, err := net.Dial("tcp4", os.Getenv(streamVariable))
		if err != nil {
			return churnReading{}, err
		}
		warming := harness.NewRecorder(harness.FirstVersion+size.pods, size.warming(), size.pace)
		boundary := warming.Next()
		measured := harness.NewRecorder(boundary, size.measured(), size.pace)
		received := func(version uint64) {
			if int(version) < boundary {
				warming.Received(version)
			} else {
				measured.Received(version)
			}
		}
		// The buffer has the size of an HTTP client's.
		if err := read(ctx, bufio.NewReaderSize(conn, 32<<10), size.pods, received); err != nil {
			return churnReading{}, err
		}
		runtime.GC()
		time.Sleep(2 * time.Second) // for background work after the first state
		if _, err := warming.Run(conn); err != nil {
			return churnReading{}, err
		}
		return recordChurn(measured, conn)
	}
}

// recordChurn measures the process while changes are read. The heap is measured before
// and after, while nothing is read, so that collections delay no change.
func recordChurn(measured *harness.Recorder, conn net.Conn) (r churnReading, err error) {
	runtime.GC()
	r.Early = harness.LiveHeap()
	began, used := time.Now(), harness.CPUTime()
	if r.Missed, err = measured.Run(conn); err != nil {
		return r, err
	}
	r.CPU = (harness.CPUTime() - used).Seconds() / time.Since(began).Seconds()
	runtime.GC()
	r.Late = harness.LiveHeap()
	r.P50, r.P99, r.Max = measured.Latencies().Quantiles()
	return r, nil
}

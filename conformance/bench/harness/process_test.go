// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"
)

// busy uses the processor for a duration.
func busy(d time.Duration) {
	for end := CPUTime() + d; CPUTime() < end; {
		continue
	}
}

func TestProcess_measuresProcessorTime(t *testing.T) {
	p := Process{Name: "test", PID: os.Getpid()}
	before, err := p.CPU()
	if err != nil {
		t.Fatal(err)
	}
	busy(100 * time.Millisecond)
	after, err := p.CPU()
	if err != nil || after-before < 80*time.Millisecond {
		t.Errorf("%v after 100 ms, %v", after-before, err)
	}
	if own := CPUTime(); own < after-time.Second || own > after+time.Second {
		t.Errorf("CPUTime is %v, /proc has %v", own, after)
	}
}

func TestProcess_measuresIdleProcessors(t *testing.T) {
	p := Process{Name: "test", PID: os.Getpid()}
	idle, err := p.IdleCPU(50 * time.Millisecond)
	if err != nil || idle < 0 || idle > float64(runtime.NumCPU()) {
		t.Errorf("%v, %v", idle, err)
	}
}

func TestProcess_measuresPeakMemory(t *testing.T) {
	p := Process{Name: "test", PID: os.Getpid()}
	before, err := p.Memory()
	if err != nil {
		t.Fatal(err)
	}
	const (
		size  = 64 << 20
		slack = 1 << 20 // the kernel updates its counters in batches
	)
	broken := errors.New("broken")
	peak, err := p.PeakMemory(func() error {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i)
		}
		time.Sleep(3 * memoryInterval) // the memory is measured in this time
		runtime.KeepAlive(data)
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if peak < before+size*9/10 || MaxRSS()+slack < peak {
		t.Errorf("peak %d after %d, largest %d", peak, before, MaxRSS())
	}
	if now := RSS(); now == 0 || now > MaxRSS()+slack {
		t.Errorf("RSS is %d, the largest %d", now, MaxRSS())
	}
}

func TestProcess_thatHasEndedCannotBeMeasured(t *testing.T) {
	p := Process{Name: "gone", PID: 1 << 30}
	if _, err := p.CPU(); err == nil {
		t.Error("processor time")
	}
	if _, err := p.Memory(); err == nil {
		t.Error("memory")
	}
	if _, err := p.SettledMemory(); err == nil {
		t.Error("settled memory")
	}
	if _, err := p.IdleCPU(time.Millisecond); err == nil {
		t.Error("idle")
	}
}

func TestFootprint_isWithoutWhatWasThereBefore(t *testing.T) {
	before := MeasureFootprint()
	kept := make([]*[1 << 10]byte, 1000)
	for i := range kept {
		kept[i] = new([1 << 10]byte)
	}
	after := MeasureFootprint()
	grown := after.Since(before)
	runtime.KeepAlive(kept)
	if grown.Heap < 900<<10 || grown.Heap > 2<<20 || grown.Objects < 1000 {
		t.Errorf("%+v", grown)
	}
	if grown.RSS != after.RSS || grown.MaxRSS != after.MaxRSS {
		t.Errorf("%+v, want the RSS of %+v", grown, after)
	}
	if LiveHeap() == 0 {
		t.Error("no live heap")
	}
}

func TestCost_isOfOneOperation(t *testing.T) {
	if c := Cost(10, func() { busy(20 * time.Millisecond) }); c < 2*time.Millisecond || c > 20*time.Millisecond {
		t.Error(c)
	}
	var order []string
	o, th := Alternate(2, func() time.Duration { order = append(order, "ours"); return 2 }, func() time.Duration {
		order = append(order, "theirs")
		return 4
	})
	if o != 2 || th != 4 || len(order) != 4 || order[0] != "ours" || order[1] != "theirs" || order[2] != "ours" {
		t.Errorf("%v, %v, %v", o, th, order)
	}
}

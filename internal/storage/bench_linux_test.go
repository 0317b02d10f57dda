// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const benchPods = 100_000

// cpu returns the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func podIdentity() Identity {
	return Identity{
		Cluster:   "uid-1",
		Version:   "v1",
		Resource:  "pods",
		Kind:      "Pod",
		Encoding:  "Protobuf",
		Transform: "drop:managedFields",
	}
}

// benchPod returns pod i at a version, as an informer stores it.
func benchPod(b *testing.B, i int, version uint64, kind *wire.Kind) *wire.Object {
	b.Helper()
	pod := kubetest.Workload{}.Pod(i)
	pod.ManagedFields = nil
	pod.ResourceVersion = fmt.Sprint(version)
	raw, err := pod.Marshal()
	must(b, err)
	o, err := wire.NewObject(raw, wire.Protobuf, kind)
	must(b, err)
	return o
}

// packedPods returns a store of packed pods.
func packedPods(b *testing.B) (*store.Store[*wire.Object], *objectpack.Packer) {
	b.Helper()
	p, kind := objectpack.NewPacker(0), format.KindOf(podIdentity())
	s := store.New((*wire.Object).Key, nil)
	for i := 0; i < benchPods; i += 1000 {
		var all []delta.Delta[*wire.Object]
		for n := i; n < i+1000; n++ {
			o := benchPod(b, n, uint64(n+1), kind)
			p.Pack(o, nil)
			all = append(all, delta.Delta[*wire.Object]{
				Type: delta.Replaced, Key: o.Key(), Object: o, Version: uint64(n + 1),
			})
		}
		s.Apply(all)
	}
	for _, o := range s.All() {
		p.Pack(o, nil)
	}
	return s, p
}

// BenchmarkPods writes a snapshot of 100,000 packed pods, loads it, and then writes
// changes. The figures are CPU times of the process.
func BenchmarkPods(b *testing.B) {
	s, p := packedPods(b)
	for b.Loop() {
		path := b.TempDir()
		d, err := Open(path, Options{})
		must(b, err)
		m := openMirror(b, d, podIdentity(), MirrorOptions{Packer: p})
		began := cpu(b)
		m.Append(Batch{State: s.Snapshot()})
		step(d)
		step(d)
		b.ReportMetric((cpu(b) - began).Seconds(), "cpu-s/snapshot")
		b.ReportMetric(float64(d.Stats().Bytes)/benchPods, "B/object")
		if m.Status().Behind {
			b.Fatal(d.Stats().LastError)
		}
		must(b, d.Close())

		began, wall := cpu(b), time.Now()
		d, err = Open(path, Options{})
		must(b, err)
		m = openMirror(b, d, podIdentity(), MirrorOptions{Packer: p})
		state, err := m.Load(0)
		must(b, err)
		if len(state.Objects) != benchPods {
			b.Fatalf("%d objects", len(state.Objects))
		}
		b.ReportMetric((cpu(b) - began).Seconds(), "cpu-s/load")
		b.ReportMetric(time.Since(wall).Seconds(), "s/load")
		first := s.Snapshot().Version()
		churn(b, d, m, s, p)
		must(b, d.Close())
		past(b, path, first, s.Snapshot().Version())
	}
}

// past loads the mirror with the changes that led to its state, and reads its state in the
// middle of them.
func past(b *testing.B, path string, first, last uint64) {
	b.Helper()
	d, err := Open(path, Options{})
	must(b, err)
	defer d.Close()
	for name, window := range map[string]int64{"cpu-s/load-after-churn": 0, "cpu-s/load-64MiB-window": 64 << 20} {
		began := cpu(b)
		c := newCluster(d, "east")
		c.once.Do(c.open)
		m, err := c.Mirror(podIdentity(), MirrorOptions{})
		must(b, err)
		state, err := m.Load(window)
		must(b, err)
		if state.Version != last || len(state.Objects) != benchPods || (len(state.Records) > 0) != (window > 0) {
			b.Fatalf("version %d with %d objects and %d records", state.Version, len(state.Objects), len(state.Records))
		}
		b.ReportMetric((cpu(b) - began).Seconds(), name)
	}
	for name, m := range map[string]Moment{
		"cpu-s/at-first":  {Version: first + 1000},
		"cpu-s/at-middle": {Version: (first + last) / 2},
		"cpu-s/at-last":   {Version: last - 1000},
	} {
		began := cpu(b)
		state, err := newCluster(d, "east").At(podIdentity(), m)
		must(b, err)
		if state.Version > m.Version || state.Version+100 < m.Version {
			b.Fatalf("version %d at %v", state.Version, m)
		}
		b.ReportMetric((cpu(b) - began).Seconds(), name)
	}
}

// churn appends changes of packed pods in batches of 100 and writes each batch, as at 10,000
// changes per second, with a sync after each 10,000.
func churn(b *testing.B, d *Directory, m *Mirror, s *store.Store[*wire.Object], p *objectpack.Packer) {
	b.Helper()
	const changes = 300_000
	var spent time.Duration
	var logical int64
	before := d.Stats().Bytes
	kind := format.KindOf(podIdentity())
	version := s.Snapshot().Version()
	for n := 0; n < changes; n += 100 {
		var all []delta.Delta[*wire.Object]
		for i := range 100 {
			version++
			o := benchPod(b, (n+i)*7919%benchPods, version, kind)
			old, _ := s.Get(o.Key())
			p.Pack(o, old)
			logical += int64(len(p.Stored(o, nil).Data) + len(o.Key()))
			all = append(all, delta.Delta[*wire.Object]{Type: delta.Updated, Key: o.Key(), Object: o, Version: version})
		}
		batch := Batch{Changes: s.Apply(all), State: s.Snapshot()}
		began := cpu(b)
		m.Append(batch)
		d.round(time.Now())
		select {
		case j := <-d.jobs:
			name := format.SnapshotName(j.mirror.digest, j.after)
			must(b, d.writeSnapshot(j, name, func(time.Duration) {}))
			d.ledger.stateWritten(j, name)
		default:
		}
		if n%10_000 == 0 {
			must(b, m.cluster.sync())
			must(b, d.dictionaries.WriteWanted())
		}
		spent += cpu(b) - began
	}
	b.ReportMetric(spent.Seconds()/changes*10_000, "processors@10k/s")
	b.ReportMetric(float64(d.Stats().Bytes-before)/float64(logical), "written/logical")
	b.ReportMetric(float64(logical)/changes, "B/change")
	b.ReportMetric(float64(d.Stats().Snapshots), "snapshots")
}

// BenchmarkSnapshot_settled writes and loads a snapshot of 20,000 pods that have not changed for a
// while. The results are for each pod.
func BenchmarkSnapshot_settled(b *testing.B) {
	const pods = 20_000
	p, kind := objectpack.NewPacker(0), format.KindOf(podIdentity())
	var all []delta.Delta[*wire.Object]
	for i := range pods {
		o := benchPod(b, i, uint64(i+1), kind)
		p.Pack(o, nil)
		all = append(all, delta.Delta[*wire.Object]{
			Type: delta.Replaced, Key: o.Key(), Object: o, Version: uint64(i + 1),
		})
	}
	s := store.New((*wire.Object).Key, nil)
	s.Apply(all)
	var last *wire.Object
	for _, o := range s.All() {
		p.Settle(o, last)
		last = o
	}
	each := func(took time.Duration) float64 { return float64(took.Nanoseconds()) / 1000 / pods }
	for b.Loop() {
		path := b.TempDir()
		d, err := Open(path, Options{})
		must(b, err)
		began := cpu(b)
		openMirror(b, d, podIdentity(), MirrorOptions{Packer: p}).Append(Batch{State: s.Snapshot()})
		step(d)
		b.ReportMetric(each(cpu(b)-began), "cpu-us/write")
		b.ReportMetric(float64(d.Stats().Bytes)/pods, "B/object")
		must(b, d.Close())
		began = cpu(b)
		d, err = Open(path, Options{})
		must(b, err)
		state, err := openMirror(b, d, podIdentity(), MirrorOptions{}).Load(0)
		must(b, err)
		if len(state.Objects) != pods {
			b.Fatalf("%d objects", len(state.Objects))
		}
		b.ReportMetric(each(cpu(b)-began), "cpu-us/load")
		must(b, d.Close())
	}
}

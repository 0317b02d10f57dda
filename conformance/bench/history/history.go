// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package history measures reads of the past of one object, from the files of an hour of
// changes, with the index by key and without it.
package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// folderVariable is the variable with the folder of the recording. If the folder has one,
	// it is read again. Default: a temporary one.
	folderVariable = "WATERSHED_HISTORY_DIRECTORY"
	// doneFile is the file that ends a recording. It has the result of recording it.
	doneFile = "RECORDED"
	// quietPods is how many pods do not change.
	quietPods = 1000
	// largestBatch is the largest number of changes in a batch.
	largestBatch = 10
)

// Trial has the recording of the hour, and the reads with the index and without it.
var Trial = harness.Trial[reading]{
	Name:  "history",
	Limit: time.Hour,
	Subjects: []harness.Subject[reading]{
		{Name: "record", Runs: 1, Measure: recordHour},
		{Name: "index", Runs: 3, Measure: func(context.Context) (reading, error) { return readPast(true) }},
		{Name: "whole", Runs: 1, Measure: func(context.Context) (reading, error) { return readPast(false) }},
	},
	Order: func(r reading) float64 {
		if len(r.Reads) == 0 {
			return 0
		}
		return r.Reads[0].CPU.Seconds()
	},
}

// reading is the result that a process has measured of itself.
type reading struct {
	Changes int64
	// Files and Log are the sizes of all files and of the log, and Index that of its index.
	Files, Log, Index float64
	// CPU is what the goroutine that writes took for each change, and IndexCPU which part of it
	// the index took.
	CPU      time.Duration
	IndexCPU float64
	Reads    []objectRead
}

// objectRead is a read of the past of one object.
type objectRead struct {
	What string
	// Found is the number of changes or objects.
	Found     int
	Wall, CPU time.Duration
	// Heap is how many bytes the heap grew at most, with garbage.
	Heap uint64
}

// Bench is the benchmark history. It records an hour at 1,000 changes a second of 100,000 pods, as fast as it can be
// written, and reads the past of one pod, with the index by key and without it.
func Bench(out io.Writer) error {
	return harness.WithFolder(folderVariable, func() error {
		median, err := Trial.Run(context.Background())
		if err != nil {
			return err
		}
		r, err := newReport(median)
		if err != nil {
			return err
		}
		return r.Write(out)
	})
}

// newReport returns the report.
func newReport(median map[string]reading) (*harness.Report, error) {
	record, index, whole := median["record"], median["index"], median["whole"]
	const mib = 1 << 20
	log := index.most("log")
	before := whole.most("log")
	at := index.most("get")
	atBefore := whole.most("get")
	r := &harness.Report{
		Heading: fmt.Sprintf("%d changes in batches of 1 to %d; files %.0f MB, of which the log has %.0f MB "+
			"and its index %.0f MB; the writer takes %v for each change",
			record.Changes, largestBatch, record.Files/1e6, record.Log/1e6, record.Index/1e6, record.CPU),
		Columns: []string{"read of one pod"},
		Summary: fmt.Sprintf("history: log-cpu-ms=%.0f before=%.0f log-mib=%.1f before=%.0f "+
			"at-ms=%.1f before=%.0f index-share=%.4f write-cpu=%.4f",
			harness.InMilliseconds(log.CPU), harness.InMilliseconds(before.CPU), float64(log.Heap)/mib,
			float64(before.Heap)/mib,
			harness.InMilliseconds(at.CPU), harness.InMilliseconds(atBefore.CPU), record.Index/record.Log,
			record.IndexCPU),
	}
	// pair is a read with the index and without it.
	type pair struct{ with, without objectRead }
	var rows []harness.Row[pair]
	for i, x := range index.Reads {
		y := whole.Reads[i]
		if x.Found != y.Found {
			return nil, fmt.Errorf("%s: %d found, and %d without the index", x.What, x.Found, y.Found)
		}
		rows = append(rows, harness.Row[pair]{Bar: harness.Bar{Name: x.What}, Reading: pair{x, y}})
	}
	harness.AddRows(r, rows,
		harness.Col("found", "%.0f", func(p pair) int { return p.with.Found }),
		harness.Ms("CPU ms", "%.1f", func(p pair) time.Duration { return p.with.CPU }),
		harness.Col("heap MiB", "%.1f", func(p pair) float64 { return float64(p.with.Heap) / mib }),
		harness.Ms("ms", "%.1f", func(p pair) time.Duration { return p.with.Wall }),
		harness.Ms("without the index: CPU ms", "%.0f", func(p pair) time.Duration { return p.without.CPU }),
		harness.Col("heap MiB", "%.0f", func(p pair) float64 { return float64(p.without.Heap) / mib }),
		harness.Ms("ms", "%.0f", func(p pair) time.Duration { return p.without.Wall }),
	)
	return r, nil
}

// most returns the greatest costs of the reads of a kind.
func (r reading) most(kind string) (worst objectRead) {
	for _, x := range r.Reads {
		if strings.HasPrefix(x.What, kind) {
			worst.CPU, worst.Heap = max(worst.CPU, x.CPU), max(worst.Heap, x.Heap)
		}
	}
	return worst
}

func podsIdentity() (storage.Identity, *wire.Kind) {
	kind, _ := kube.KindOf(harness.Pods)
	return engine.Identity(kube.Query{Resource: harness.Pods}, kind), kind
}

// dropCache lets the kernel forget the content of the files, as far as it does.
func dropCache(folder string) error {
	return harness.WalkFiles(folder, func(path string, _ float64) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		const dontNeed = 4
		if _, _, no := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); no != 0 {
			return no
		}
		return nil
	})
}

// readPast measures reads of the recording, with the index or without it.
func readPast(index bool) (r reading, err error) {
	folder := filepath.Join(os.Getenv(folderVariable), "files")
	d, err := disk.Open(folder, nil)
	if err != nil {
		return r, err
	}
	defer d.Close()
	id, _ := podsIdentity()
	c := d.Storage().Cluster("bench")
	first, last, err := recordingPeriod(c, id)
	if err != nil {
		return r, err
	}
	key := func(i int) string {
		pod := kubetest.Workload{Seed: 1}.Pod(i)
		return pod.Namespace + "/" + pod.Name
	}
	read := objectReads{cluster: c, id: id, index: index}
	for _, cold := range []bool{true, false} {
		name := map[bool]string{true: "cold", false: "warm"}[cold]
		for i, what := range []string{"without changes", "that changes"} {
			i *= quietPods
			one := func(label string, f func() (int, error)) {
				heap, failed := heapGrowth(f)
				if cold {
					failed = errors.Join(failed, dropCache(folder))
				}
				x, again := measureRead(f)
				x.Heap, failed = heap, errors.Join(failed, again)
				x.What = fmt.Sprintf("%s of a pod %s, %s", label, what, name)
				r.Reads, err = append(r.Reads, x), errors.Join(err, failed)
			}
			one("log", func() (int, error) { return read.log(key(i), first, last) })
			one("get", func() (int, error) { return read.at(key(i), first.Add(last.Sub(first)/2)) })
		}
	}
	return r, err
}

// recordingPeriod returns when the recording begins and ends.
func recordingPeriod(c *storage.Cluster, id storage.Identity) (first, last time.Time, err error) {
	tooOld := (*storage.TooOldError)(nil)
	if _, err := c.ObjectAt(id, time.Time{}, "x"); !errors.As(err, &tooOld) {
		return first, last, fmt.Errorf("the first state: %w", err)
	}
	s, err := c.ObjectAt(id, time.Now(), "x")
	if err != nil {
		return first, last, err
	}
	return tooOld.Time, s.Time, nil
}

// objectReads reads the past of an object as the replica does.
type objectReads struct {
	cluster *storage.Cluster
	id      storage.Identity
	index   bool
}

func (r *objectReads) at(key string, at time.Time) (int, error) {
	var s *storage.State
	var err error
	if r.index {
		s, err = r.cluster.ObjectAt(r.id, at, key)
	} else {
		s, err = r.cluster.AtKeys(r.id, storage.Moment{Time: at}, func(k string) bool { return k == key })
	}
	if err != nil {
		return 0, err
	}
	return len(s.Objects), nil
}

func (r *objectReads) log(key string, since, until time.Time) (n int, err error) {
	if _, err := r.at(key, since); err != nil {
		return 0, err
	}
	var entries iter.Seq2[storage.Entry, error]
	if r.index {
		entries = r.cluster.ObjectHistory(r.id, key, since, until)
	} else {
		entries = r.cluster.History(since, func(id storage.Identity) bool { return id == r.id })
	}
	for entry, err := range entries {
		if err != nil {
			return n, err
		}
		for i := range entry.Changes {
			if entry.Changes[i].Key == key {
				n++
			}
		}
	}
	return n, nil
}

// measureRead measures the time of a read.
func measureRead(read func() (int, error)) (x objectRead, err error) {
	runtime.GC()
	at, used := time.Now(), harness.CPUTime()
	x.Found, err = read()
	x.Wall, x.CPU = time.Since(at), harness.CPUTime()-used
	return x, err
}

// heapGrowth returns by how many bytes the heap grows during a read, at most. It looks at it
// every millisecond, which takes CPU.
func heapGrowth(read func() (int, error)) (bytes uint64, err error) {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	size := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := size()
	most, done := before, make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				most = max(most, size())
			}
		}
	})
	_, err = read()
	close(done)
	sampling.Wait()
	return max(most, size()) - before, err
}

// versionedPods makes pods that differ in their version, and in a number in their status.
type versionedPods struct {
	kind   *wire.Kind
	packer *objectpack.Packer
	raw    [][]byte
}

const versionDigits = "9999999999"

func newVersionedPods(n int, kind *wire.Kind) (*versionedPods, error) {
	p := &versionedPods{kind: kind, packer: objectpack.NewPacker(0), raw: make([][]byte, n)}
	for i := range p.raw {
		pod := kubetest.Workload{Seed: 1}.Pod(i)
		pod.ResourceVersion = versionDigits
		pod.Status.Message = "probe " + versionDigits
		var err error
		if p.raw[i], err = pod.Marshal(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// at returns a pod at a version.
func (p *versionedPods) at(i int, version uint64) (*wire.Object, error) {
	raw := bytes.ReplaceAll(p.raw[i], []byte(versionDigits), strconv.AppendUint(nil, version, 10))
	return wire.NewObject(raw, wire.Protobuf, p.kind)
}

// recordHour records the hour, unless the folder has it.
func recordHour(ctx context.Context) (r reading, err error) {
	folder := os.Getenv(folderVariable)
	done := filepath.Join(folder, doneFile)
	if text, err := os.ReadFile(done); err == nil {
		_, err := fmt.Sscan(string(text), &r.Changes, &r.CPU, &r.IndexCPU)
		return r, errors.Join(err, r.measureFiles(folder))
	}
	d, err := harness.OpenFiles(filepath.Join(folder, "files"),
		&disk.Options{Window: 24 * time.Hour, WindowBytes: 1 << 40})
	if err != nil {
		return r, err
	}
	profile, err := os.Create(filepath.Join(folder, "cpu.prof"))
	if err != nil {
		return r, err
	}
	if err := pprof.StartCPUProfile(profile); err != nil {
		return r, err
	}
	err = writeChanges(ctx, d.Directory)
	err = errors.Join(err, d.End())
	pprof.StopCPUProfile()
	if err = errors.Join(err, profile.Close()); err != nil {
		return r, err
	}
	stats := d.Stats()
	if stats.Dropped > 0 {
		return r, fmt.Errorf("%d batches were dropped: %w", stats.Dropped, stats.LastError)
	}
	r.Changes = stats.Changes
	if err := errors.Join(r.measureWriter(profile.Name()), r.measureFiles(folder), d.Close()); err != nil {
		return r, err
	}
	return r, os.WriteFile(done, fmt.Appendf(nil, "%d %d %g\n", r.Changes, r.CPU, r.IndexCPU), 0o600)
}

// recordingSize returns how many pods there are, and how many changes.
func recordingSize() (pods, changes int, err error) {
	pods, err = harness.EnvInt(harness.EnvPods, 100_000)
	if err != nil {
		return 0, 0, err
	}
	seconds, err := harness.EnvInt(harness.EnvSeconds, 3600)
	if err != nil {
		return 0, 0, err
	}
	rate, err := harness.EnvInt(harness.EnvRate, 1000)
	return pods, seconds * rate, err
}

// writeChanges writes the changes. It waits while much of them is not written yet.
func writeChanges(ctx context.Context, d *disk.Directory) error {
	pods, count, err := recordingSize()
	if err != nil {
		return err
	}
	id, kind := podsIdentity()
	all, err := newVersionedPods(pods, kind)
	if err != nil {
		return err
	}
	m, err := d.Storage().Cluster("bench").Mirror(id, storage.MirrorOptions{Kind: kind, Packer: all.packer})
	if err != nil {
		return err
	}
	s, version := store.New((*wire.Object).Key, nil), uint64(harness.FirstVersion)
	apply := func(t delta.Type, which []int) error {
		var deltas []delta.Delta[*wire.Object]
		for _, i := range which {
			version++
			o, err := all.at(i, version)
			if err != nil {
				return err
			}
			deltas = append(deltas, delta.Delta[*wire.Object]{Type: t, Key: o.Key(), Object: o, Version: version})
		}
		changes := s.Apply(deltas)
		if t == delta.Updated {
			m.Append(storage.Batch{Changes: changes, State: s.Snapshot()})
		}
		for i := range deltas { // as an informer does later
			all.packer.Pack(deltas[i].Object, nil)
		}
		return nil
	}
	for i := range pods {
		if err := apply(delta.Replaced, []int{i}); err != nil {
			return err
		}
	}
	m.Append(storage.Batch{State: s.Snapshot()})
	for m.Status().Behind {
		time.Sleep(10 * time.Millisecond)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for n := 0; n < count; {
		var which []int
		for range 1 + random.IntN(largestBatch) {
			which = append(which, quietPods+n*7919%(pods-quietPods))
			n++
		}
		if err := apply(delta.Updated, which); err != nil {
			return err
		}
		for d.Stats().Queued > 8<<20 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	return ctx.Err()
}

// measureWriter reads the CPU profile of the recording.
func (r *reading) measureWriter(profile string) error {
	text, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0", "-unit=ms",
		profile).Output()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
	used := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		if ms, err := strconv.ParseFloat(strings.TrimSuffix(f[3], "ms"), 64); err == nil {
			used[f[5][strings.LastIndex(f[5], "/")+1:]] = ms
		}
	}
	writer := used["disk.(*Directory).writeLoop"]
	if writer == 0 {
		return errors.New("the profile does not have the writer")
	}
	r.CPU = time.Duration(writer * 1e6 / float64(r.Changes))
	r.IndexCPU = (used["disk.(*clusterLog).addIndex"] + used["keyindex.(*Builder).Add"] + used["keyindex.Hash"]) /
		writer
	return nil
}

// measureFiles measures the files of the recording.
func (r *reading) measureFiles(folder string) error {
	return harness.WalkFiles(filepath.Join(folder, "files"), func(path string, size float64) error {
		r.Files += size
		if !strings.HasPrefix(filepath.Base(path), "log-") {
			return nil
		}
		r.Log += size
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		header := make([]byte, 20)
		for at := int64(16); ; { // a frame begins with the size of its payload, and has its kind at 8
			if _, err := f.ReadAt(header, at); err != nil {
				return nil
			}
			frame := 20 + int64(binary.LittleEndian.Uint32(header))
			if header[8] == 'k' {
				r.Index += float64(frame)
			}
			at += frame
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// historyPods makes pods that differ in their version, and in a number in their status.
type historyPods struct {
	kind   *wire.Kind
	packer *wire.Packer
	raw    [][]byte
}

const historyDigits = "9999999999"

func newHistoryPods(n int, kind *wire.Kind) (*historyPods, error) {
	p := &historyPods{kind: kind, packer: wire.NewPacker(0), raw: make([][]byte, n)}
	for i := range p.raw {
		pod := kubetest.Workload{Seed: 1}.Pod(i)
		pod.ResourceVersion = historyDigits
		pod.Status.Message = "probe " + historyDigits
		var err error
		if p.raw[i], err = pod.Marshal(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// at returns a pod at a version.
func (p *historyPods) at(i int, version uint64) (*wire.Object, error) {
	raw := bytes.ReplaceAll(p.raw[i], []byte(historyDigits), strconv.AppendUint(nil, version, 10))
	return wire.NewObject(raw, wire.Protobuf, p.kind)
}

// recordHistory records the hour, unless the folder has it.
func recordHistory(ctx context.Context) (r historyReading, err error) {
	folder := os.Getenv(historyFolder)
	done := filepath.Join(folder, historyDone)
	if text, err := os.ReadFile(done); err == nil {
		_, err := fmt.Sscan(string(text), &r.Changes, &r.CPU, &r.IndexCPU)
		return r, errors.Join(err, r.measureFiles(folder))
	}
	d, err := openFiles(filepath.Join(folder, "files"), &disk.Options{Window: 24 * time.Hour, WindowBytes: 1 << 40})
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
	err = writeHistory(ctx, d.Directory)
	err = errors.Join(err, d.end())
	pprof.StopCPUProfile()
	if err = errors.Join(err, profile.Close()); err != nil {
		return r, err
	}
	r.Changes = d.Stats().Changes
	if err := errors.Join(r.measureWriter(profile.Name()), r.measureFiles(folder), d.Close()); err != nil {
		return r, err
	}
	return r, os.WriteFile(done, fmt.Appendf(nil, "%d %d %g\n", r.Changes, r.CPU, r.IndexCPU), 0o600)
}

// historySize returns how many pods there are, and how many changes.
func historySize() (pods, changes int, err error) {
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

// writeHistory writes the changes. It waits while much of them is not written yet.
func writeHistory(ctx context.Context, d *disk.Directory) error {
	pods, count, err := historySize()
	if err != nil {
		return err
	}
	id, kind := historyIdentity()
	all, err := newHistoryPods(pods, kind)
	if err != nil {
		return err
	}
	m, err := d.Cluster("bench").Mirror(id, disk.MirrorOptions{Kind: kind, Packer: all.packer})
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
			m.Append(disk.Batch{Changes: changes, State: s.Snapshot()})
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
	m.Append(disk.Batch{State: s.Snapshot()})
	for m.Status().Behind {
		time.Sleep(10 * time.Millisecond)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for n := 0; n < count; {
		var which []int
		for range 1 + random.IntN(historyBatch) {
			which = append(which, historyQuiet+n*7919%(pods-historyQuiet))
			n++
		}
		if err := apply(delta.Updated, which); err != nil {
			return err
		}
		for d.Stats().Queued > 8<<20 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	return errors.Join(ctx.Err(), droppedBatches(d.Stats()))
}

// droppedBatches returns an error if batches were not written.
func droppedBatches(s disk.Stats) error {
	if s.Dropped == 0 {
		return nil
	}
	return fmt.Errorf("%d batches were dropped: %w", s.Dropped, s.LastError)
}

// measureWriter reads the CPU profile of the recording.
func (r *historyReading) measureWriter(profile string) error {
	text, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=100000", "-nodefraction=0", "-unit=ms", profile).Output()
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
	r.IndexCPU = (used["disk.(*clusterLog).addIndex"] + used["keyindex.(*Builder).Add"] + used["keyindex.Hash"]) / writer
	return nil
}

// measureFiles measures the files of the recording.
func (r *historyReading) measureFiles(folder string) error {
	return filepath.WalkDir(filepath.Join(folder, "files"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		r.Files += float64(info.Size())
		if !strings.HasPrefix(entry.Name(), "log-") {
			return nil
		}
		r.Log += float64(info.Size())
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
			size := 20 + int64(binary.LittleEndian.Uint32(header))
			if header[8] == 'k' {
				r.Index += float64(size)
			}
			at += size
		}
	})
}

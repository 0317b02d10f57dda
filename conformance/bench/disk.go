// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/kube"
)

var diskTrial = harness.Trial[diskReading]{
	Name: "disk",
	Subjects: []harness.Subject[diskReading]{
		{Name: "memory only", Runs: 3, Measure: measureDisk(false)},
		{Name: "with files", Runs: 3, Measure: measureDisk(true)},
	},
	Order: func(r diskReading) float64 { return r.P99.Seconds() },
}

// diskReading is the result that a process has measured of itself.
type diskReading struct {
	churnReading
	// Written is the number of bytes in files, and Logical the number of bytes of the
	// stored changes and their keys.
	Written, Logical float64
	// Dropped is how often changes were not written because the files were behind.
	Dropped int64
}

// benchDisk measures the cost of storing 10,000 changes a second of 100,000 pods.
func benchDisk(out io.Writer) error {
	size, median, _, err := runWithStream(&diskTrial)
	if err != nil {
		return err
	}
	without, with := median["memory only"], median["with files"]
	r := &harness.Report{
		Name: "disk",
		Heading: fmt.Sprintf("%v, %d s, one packed informer with a handler; %s", size, size.seconds,
			diskTrial.Repetitions()),
		Columns:  []string{"objects are kept in"},
		Measures: append([]string{"./disk"}, harness.Informer...),
		Summary: fmt.Sprintf("disk: cpu=%.2f write-amplification=%.2f p99-ratio=%.2f",
			with.CPU-without.CPU, with.Written/with.Logical, with.P99.Seconds()/without.P99.Seconds()),
	}
	type reading = diskReading
	harness.AddRows(r, diskTrial.Rows(median),
		harness.Ms("p50 ms", "%.2f", func(r reading) time.Duration { return r.P50 }),
		harness.Ms("p99 ms", "%.1f", func(r reading) time.Duration { return r.P99 }).As("p99", "ms"),
		harness.Col("CPU, processors", "%.2f", func(r reading) float64 { return r.CPU }).As("cpu", "cores"),
		harness.Col("written MB", harness.MB, func(r reading) float64 { return r.Written }),
		harness.Col("dropped", "%.0f", func(r reading) int64 { return r.Dropped }),
	)
	r.Value("more-cpu", with.CPU-without.CPU, "cores")
	r.Value("written-per-byte", with.Written/with.Logical, "bytes")
	return r.Write(out)
}

// measureDisk returns the measurement of an informer in this process, with or without
// files.
func measureDisk(stored bool) func(context.Context) (diskReading, error) {
	return func(ctx context.Context) (r diskReading, err error) {
		read := churnTyped(watershed.Packed)
		if !stored {
			r.churnReading, err = measureChurn(read)(ctx)
			return r, err
		}
		folder, err := os.MkdirTemp("", "watershed-disk-")
		if err != nil {
			return r, err
		}
		defer os.RemoveAll(folder)
		files, err := harness.OpenFiles(folder, nil)
		if err != nil {
			return r, err
		}
		d := files.Directory
		var i *watershed.Informer[*corev1.Pod]
		var before disk.Stats
		r.churnReading, err = measureChurn(func(ctx context.Context, body io.Reader, n int,
			received func(uint64)) error {
			i = newChurnInformer(body, &watershed.SourceOptions[*corev1.Pod]{
				Memory: watershed.Packed,
				Hooks:  engine.Hooks{Stored: churnFiles(d)},
			})
			err := churnWith(ctx, i, n, received)
			before = d.Stats()
			return err
		})(ctx)
		if err == nil {
			now, held := d.Stats(), i.Stats()
			r.Written, r.Dropped = float64(now.Bytes-before.Bytes), int64(now.Dropped)
			each := float64(held.ObjectBytes)/float64(held.Objects) + averageKey
			r.Logical = float64(now.Changes-before.Changes) * each
		}
		return r, errors.Join(err, files.End())
	}
}

// averageKey is about the length of the pods' keys.
const averageKey = 30

// churnFiles returns the files of the benchmark's pods.
func churnFiles(d *disk.Directory) *engine.Stored {
	return &engine.Stored{Open: func(_ context.Context, packer *objectpack.Packer) (*storage.Mirror, error) {
		kind, _ := kube.KindOf(harness.Pods)
		id := engine.Identity(kube.Query{Resource: harness.Pods}, kind)
		return d.Storage().Cluster("bench").Mirror(id, storage.MirrorOptions{Kind: kind, Packer: packer})
	}}
}

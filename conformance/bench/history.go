// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

var historyTrial = harness.Trial[historyReading]{
	Name:     "history",
	Limit:    2 * time.Hour,
	Subjects: []harness.Subject[historyReading]{{Name: "with files", Runs: 1, Measure: measureHistory}},
	Order:    func(r historyReading) float64 { return r.P99.Seconds() },
}

// historyReading is the result that a process has measured of itself.
type historyReading struct {
	churnReading
	// Files is the size of all files at the end, and Written the number of bytes that were
	// written.
	Files, Written float64
	Changes        int64
	Dropped        int64
	Reads          []historyRead
}

// historyRead is a read of the past.
type historyRead struct {
	What string
	// Found is the number of changes or objects.
	Found     int
	Wall, CPU time.Duration
}

// benchHistory measures the files of an hour at 1,000 changes a second, and reads of the
// past from them.
func benchHistory(out io.Writer) error {
	for name, value := range map[string]string{harness.EnvSeconds: "3600", harness.EnvRate: "1000"} {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	size, median, _, err := runChurn(&historyTrial, out)
	if median == nil || err != nil {
		return err
	}
	return printHistory(out, size, median["with files"])
}

// printHistory prints the tables, and the line for scripts.
func printHistory(out io.Writer, size churnSize, r historyReading) error {
	day := r.Files * (24 * time.Hour).Seconds() / float64(size.seconds)
	fmt.Fprintf(out, "%v, %d s, one packed informer with files; %d changes, %d dropped, %.2f processors, p99 %.1f ms\n", size, size.seconds, r.Changes, r.Dropped, r.CPU, inMilliseconds(r.P99))
	fmt.Fprintf(out, "files %.0f MB, written %.0f MB, %.0f bytes of files per change; 24 hours take %.1f GB\n\n", r.Files/1e6, r.Written/1e6, r.Files/float64(r.Changes), day/1e9)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "read\tfound\ts\tCPU s")
	for _, x := range r.Reads {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\n", x.What, x.Found, x.Wall.Seconds(), x.CPU.Seconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nhistory: bytes-per-change=%.0f day-gb=%.1f changes-s=%.2f at-s=%.2f\n", r.Files/float64(r.Changes), day/1e9, r.Reads[0].Wall.Seconds(), r.Reads[len(r.Reads)-1].Wall.Seconds())
	return nil
}

// measureHistory measures an informer with files in this process, and reads them.
func measureHistory(ctx context.Context) (r historyReading, err error) {
	folder, err := os.MkdirTemp("", "watershed-history-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(folder)
	d, err := openFiles(folder, &disk.Options{Window: 24 * time.Hour, WindowBytes: 1 << 40})
	if err != nil {
		return r, err
	}
	began := time.Now()
	r.churnReading, err = measureChurn(func(ctx context.Context, body io.Reader, n int, received func(uint64)) error {
		return churnWith(ctx, newChurnInformer(body, &watershed.Options[*corev1.Pod]{Memory: watershed.Packed, Stored: churnFiles(d.Directory)}), n, received)
	})(ctx)
	if err == nil {
		stats := d.Stats()
		r.Written, r.Changes, r.Dropped = float64(stats.Bytes), stats.Changes, int64(stats.Dropped)
		if r.Files, err = folderSize(folder); err == nil {
			r.Reads, err = readHistory(d.Cluster("bench"), time.Since(began))
		}
	}
	return r, errors.Join(err, d.end())
}

// readHistory measures reads of the past, which reaches back for some time.
func readHistory(c *disk.Cluster, age time.Duration) (reads []historyRead, err error) {
	kind, _ := kube.KindOf(harness.Pods)
	id := watershed.Identity(kube.Query{Resource: harness.Pods}, kind)
	measure := func(what string, ago time.Duration, read func(time.Time) (int, error)) {
		if err != nil {
			return
		}
		at, used := time.Now(), harness.CPUTime()
		x := historyRead{What: fmt.Sprintf("%s %v ago", what, ago.Round(time.Second))}
		x.Found, err = read(at.Add(-ago))
		x.Wall, x.CPU = time.Since(at), harness.CPUTime()-used
		reads = append(reads, x)
	}
	for _, ago := range []time.Duration{age, age / 10} {
		measure("changes by manager since", ago, func(since time.Time) (int, error) { return countHistory(c, since) })
	}
	for _, ago := range []time.Duration{age * 9 / 10, age / 2, age / 60} {
		measure("state", ago, func(at time.Time) (int, error) {
			s, err := c.At(id, disk.Moment{Time: at})
			if err != nil {
				return 0, err
			}
			return len(s.Objects), nil
		})
	}
	return reads, err
}

// countHistory counts the changes since a time and finds their managers, as the replica
// does.
func countHistory(c *disk.Cluster, since time.Time) (n int, err error) {
	last, managers := map[string]*wire.Object{}, map[string]int{}
	for entry, err := range c.History(since, func(disk.Identity) bool { return true }) {
		if err != nil {
			return n, err
		}
		for _, change := range entry.Changes {
			if change.Manager != "" {
				managers[change.Manager]++
			} else {
				managers[strings.Join(change.Object.Managers(last[change.Key]), ",")]++
			}
			last[change.Key] = change.Object
			n++
		}
	}
	return n, nil
}

// folderSize returns the size of the files in a folder.
func folderSize(folder string) (size float64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += float64(info.Size())
		}
		return err
	})
	return size, err
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/internal/storage"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	churnPods = 20_000
	// churnBatch changes arrive together, 10,000 in a second.
	churnBatch, churnPause = 100, 10 * time.Millisecond
)

// churnSource is a source with pods, each of which changes in turn.
type churnSource struct {
	tb      testing.TB
	builder wire.Builder
	raw     [][]byte
	version uint64
	// left are the changes that the watch yields. The last ones of them are measured: began is
	// closed before them, and ran after them.
	left, measured int
	began, ran     chan struct{}
	ctx            context.Context
}

// newChurnSource returns a source that changes each pod once, and then measures further changes.
// Every state of a pod has the same length.
func newChurnSource(tb testing.TB, measured int) *churnSource {
	tb.Helper()
	s := &churnSource{
		tb: tb, version: 1_000_000_000, left: churnPods + measured, measured: measured,
		began: make(chan struct{}), ran: make(chan struct{}),
	}
	for i := range churnPods {
		pod := kubetest.Workload{}.Pod(i)
		pod.ResourceVersion, pod.Status.Message = fmt.Sprint(s.version), "change "+strings.Repeat("9", 10)
		raw, err := pod.Marshal()
		expect.NoError(tb, err)
		s.raw = append(s.raw, raw)
	}
	return s
}

// next returns the next state of a pod.
func (s *churnSource) next(i int) (*wire.Object, string) {
	s.version++
	version, raw := fmt.Sprint(s.version), s.raw[i]
	copy(raw[bytes.Index(raw, []byte("\x32\x0a1"))+2:], version)
	copy(raw[bytes.Index(raw, []byte("change "))+len("change "):], version)
	o, err := s.builder.Protobuf(&scan.Header{}, buffer.Copy(raw), wiretest.PodKind)
	expect.NoError(s.tb, err)
	return o, version
}

func (s *churnSource) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (page reflector.Page, err error) {
	for i := range s.raw {
		var o *wire.Object
		if o, page.Version = s.next(i); err == nil {
			err = each(o)
		}
	}
	return page, err
}

func (s *churnSource) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	s.ctx = ctx
	return s, nil
}

func (*churnSource) Served(context.Context) (bool, error) { return true, nil }

func (s *churnSource) Next() (e reflector.Event[*wire.Object], err error) {
	switch {
	case s.left == 0:
		close(s.ran)
		<-s.ctx.Done()
	case s.left%churnBatch == 0:
		err = timer.Sleep(s.ctx, churnPause)
	}
	if s.left == s.measured {
		close(s.began)
	}
	if s.ctx.Err() != nil {
		return e, s.ctx.Err()
	}
	s.left--
	e.Type = delta.Updated
	e.Object, e.Version = s.next(s.left * 7919 % churnPods)
	return e, err
}

func (*churnSource) Close() error { return nil }

// cpu returns the CPU time that the process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	expect.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLife_files follows 10,000 changes of pods in a second, with and without files, and reports
// the CPU of the process for each of them.
func BenchmarkLife_files(b *testing.B) {
	const changes = 50_000
	for _, stored := range []bool{false, true} {
		b.Run(fmt.Sprint(stored), func(b *testing.B) {
			for b.Loop() {
				churnLife(b, changes, stored)
			}
		})
	}
}

func churnLife(b *testing.B, changes int, stored bool) {
	b.Helper()
	source := newChurnSource(b, changes)
	values := valuecache.New(valuecache.Options{Recent: 1 << 20})
	opts := Options{Packed: true, Values: values, Reflector: reflector.Options{
		ListOnly: true, Logger: slog.New(slog.DiscardHandler),
	}}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var running sync.WaitGroup
	var d *storage.Directory
	if stored {
		var err error
		d, err = storage.Open(b.TempDir(), storage.Options{})
		expect.NoError(b, err)
		writing, stop := context.WithCancel(context.Background())
		var files sync.WaitGroup
		files.Go(func() { _ = d.Run(writing) })
		defer func() {
			stop()
			files.Wait()
			_ = d.Close()
		}()
		id := storage.Identity{Cluster: "uid-1", Version: "v1", Resource: "pods", Kind: "Pod", Encoding: "Protobuf"}
		opts.Stored = &Stored{Open: func(_ context.Context, p *objectpack.Packer) (*storage.Mirror, error) {
			return d.Cluster("east").Mirror(id, storage.MirrorOptions{Kind: wiretest.PodKind, Packer: p})
		}}
	}
	e := New(source, opts)
	running.Go(func() { _ = e.Run(ctx) })
	<-source.began
	began, written := cpu(b), int64(0)
	if stored {
		written = d.Stats().Bytes
	}
	<-source.ran
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(changes), "cpu-us/change")
	if stored {
		s := d.Stats()
		b.ReportMetric(float64(s.Bytes-written)/float64(changes), "B/change")
		b.ReportMetric(float64(s.Dropped), "dropped")
		b.ReportMetric(float64(s.Snapshots), "snapshots")
	}
	cancel()
	running.Wait()
}

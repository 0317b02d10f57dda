// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"log/slog"
	"math"
	"runtime/debug"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestLimits_followTheMemoryLimit checks that the memory of a cluster is half of the memory
// limit of the process, even if that is set after the fleet was made, as watershed serve does.
// Otherwise the limit would change with the first reload of the configuration.
func TestLimits_followTheMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	f, err := New(nobody{}, &Options{History: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	expect.NoError(t, err)
	const limit = 4 << 30
	debug.SetMemoryLimit(limit)
	bytes := func() int64 { return f.newMember("eu").server.Account().Limits().Bytes }
	if got := bytes(); got != limit/2 {
		t.Errorf("a cluster may take %d bytes of a process with %d, want half", got, int64(limit))
	}
	expect.NoError(t, f.Reconfigure(Tuning{History: 1 << 20}))
	if got := bytes(); got != limit/2 {
		t.Errorf("after a reload that changes nothing a cluster may take %d bytes, want %d", got, limit/2)
	}
}

// nobody is a directory without clusters.
type nobody struct{}

func (nobody) Follow(ctx context.Context, _ func([]Entry)) error {
	<-ctx.Done()
	return nil
}

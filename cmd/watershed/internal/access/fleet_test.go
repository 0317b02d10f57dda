// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFleet runs a fleet of clusters that do not respond.
func newFleet(t *testing.T, names ...string) *fleet.Fleet {
	t.Helper()
	var entries []fleet.Entry
	for _, name := range names {
		entries = append(entries, fleet.Entry{Name: name, Config: &rest.Config{Host: "https://127.0.0.1:1/" + name}})
	}
	d, err := directory.NewStatic(entries...)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(d, &fleet.Options{History: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

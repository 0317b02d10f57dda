// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
)

// list is a directory that does not change.
type list []fleet.Entry

func (l list) Follow(_ context.Context, notify func([]fleet.Entry)) error {
	notify(l)
	return nil
}

func (l list) Sources() []fleet.SourceState { return nil }

func TestOwnAddressFilter(t *testing.T) {
	entry := func(name, host string) fleet.Entry { return fleet.Entry{Name: name, Config: &rest.Config{Host: host}} }
	from := list{
		entry("real", "https://127.0.0.1:6443"), entry("own", "https://127.0.0.1:7443/clusters/real"),
		entry("fleet", "https://127.0.0.1:7443/fleet"),
		entry("root", "https://127.0.0.1:7443"), entry("like", "https://127.0.0.1:74430"),
		{Name: "unreachable", Err: errors.New("no")},
		entry("elsewhere", "https://localhost:8443/clusters/real"),
		entry("another's", "https://localhost:8443/clusters/real"),
	}
	authority, _ := commandtest.OpenAuthority(t, &state.Dir{Path: t.TempDir()})
	other, _ := commandtest.OpenAuthority(t, &state.Dir{Path: t.TempDir()})
	from[6].Config.CAData, from[7].Config.CAData = append(other.Bundle(), authority.Bundle()...), other.Bundle()
	var reported []string
	err := ownAddressFilter{from, []string{"192.0.2.1:7443", "127.0.0.1:7443"}, authority,
		slog.New(slog.DiscardHandler)}.Follow(t.Context(), func(entries []fleet.Entry) {
		for _, e := range entries {
			reported = append(reported, e.Name)
		}
	})
	if want := []string{"real", "like", "unreachable", "another's"}; err != nil || !slices.Equal(reported, want) {
		t.Errorf("reported %v, %v, want %v", reported, err, want)
	}
}

// TestOwnAddressFilter_noClusters logs why the replica is empty.
func TestOwnAddressFilter_noClusters(t *testing.T) {
	log := &expect.Output{}
	from := list{{Name: "own", Config: &rest.Config{Host: "https://127.0.0.1:7443/clusters/a"}}}
	notified := false
	err := ownAddressFilter{from, []string{"127.0.0.1:7443"}, nil,
		slog.New(slog.NewTextHandler(log, nil))}.Follow(t.Context(), func(entries []fleet.Entry) {
		notified = len(entries) == 0
	})
	if err != nil || !notified || !strings.Contains(log.String(), "no clusters to mirror") {
		t.Errorf("notified %t, error %v, log:\n%s", notified, err, log)
	}
}

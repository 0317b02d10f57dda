// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"slices"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

func samePod(known, listed pod) bool { return known == listed }

func TestRelist_doesNotQueueKnownStates(t *testing.T) {
	k := known{"poda": podOf(0, 1), "podb": podOf(1, 1), "podc": podOf(2, 1)}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Same: samePod, Version: podVersion})
	expect.NoError(t, f.Replace(t.Context(), []pod{podOf(0, 1), podOf(1, 2)}, 9))
	got := drained(t, f)
	want := []string{"initial: Replaced podb=2, Deleted podc=1 (missed), Bookmark 9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRelist_queuesKnownStatesAfterOthers lists an object in its known state while another
// state of it waits: the listed one must be last.
func TestRelist_queuesKnownStatesAfterOthers(t *testing.T) {
	k := known{"poda": podOf(0, 1)}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Same: samePod})
	expect.NoError(t, f.Update(t.Context(), podOf(0, 2)))
	expect.NoError(t, f.Replace(t.Context(), []pod{podOf(0, 1)}, 0))
	got := drained(t, f)
	if want := []string{"Updated poda=2, Replaced poda=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// The same while the consumer works on it.
	expect.NoError(t, f.Update(t.Context(), podOf(0, 2)))
	expect.NoError(t, f.Drain(t.Context(), func(ds delta.Deltas[pod], _ bool) error {
		expect.NoError(t, f.Replace(t.Context(), []pod{podOf(0, 1)}, 0))
		k.apply(ds)
		return nil
	}))
	got = drained(t, f)
	if want := []string{"Replaced poda=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q while the consumer works, want %q", got, want)
	}
}

func TestRelistBack_queuesKnownStates(t *testing.T) {
	k := known{"poda": podOf(0, 1)}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Same: samePod})
	r, err := f.RelistBack(t.Context())
	expect.NoError(t, err)
	defer r.Close()
	expect.NoError(t, r.Add(t.Context(), podOf(0, 1)))
	expect.NoError(t, r.Commit(t.Context(), 3))
	got := drained(t, f)
	if want := []string{"initial: Replaced poda=1 (missed), Bookmark 3 (missed)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRelist_comparesTransformed compares what would be stored, not what arrived.
func TestRelist_comparesTransformed(t *testing.T) {
	double := func(p pod) (pod, error) { return pod{Name: p.Name, Value: 2 * p.Value}, nil }
	k := known{"poda": podOf(0, 2), "podb": podOf(1, 1)}
	f := delta.New(podKey, &delta.Options[pod]{Known: k, Same: samePod, Transform: double})
	expect.NoError(t, f.Replace(t.Context(), []pod{podOf(0, 1), podOf(1, 1)}, 0))
	got := drained(t, f)
	if want := []string{"initial: Replaced podb=2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

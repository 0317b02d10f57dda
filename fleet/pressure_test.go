// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// TestPressure_stopsGrowth checks that a fleet without memory mirrors no further resources, then
// no further objects, that what it has stays current as far as possible, and that everything is
// read when there is memory again.
func TestPressure_stopsGrowth(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 50})
	first, second := s.Cluster(0), s.Cluster(1)
	first.Delete(7)
	r := newRoster()
	r.set("first", first.Config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, History: 1 << 20, Logger: quiet})
	pods, err := fleet.Of[*corev1.Pod](f)
	expect.NoError(t, err)
	count := func(name string) (n int) {
		for range pods.In(name).All() {
			n++
		}
		return n
	}
	// limited reports whether pods of a cluster fail for want of memory.
	limited := func(name string) bool {
		m, ok := f.Member(name)
		return ok && slices.ContainsFunc(m.Status().Failing, func(s fleet.ResourceStatus) bool {
			return errors.Is(s.Reflector.Err, fleet.ErrLimit)
		})
	}
	expect.Soon(t, "the first cluster is read", func() bool { return count("first") == 49 })

	f.SetMemory(fleet.Memory{Pressure: fleet.PressureFull, Room: 1 << 40})
	r.set("second", second.Config())
	expect.Soon(t, "the second cluster is refused", func() bool { return limited("second") })
	if n := count("second"); n != 0 {
		t.Errorf("%d objects of the second cluster are kept", n)
	}
	first.Create(7)
	expect.Soon(t, "a new object of the first cluster arrives", func() bool { return count("first") == 50 })
	first.Delete(8)
	expect.Soon(t, "a deletion arrives", func() bool { return count("first") == 49 })

	f.SetMemory(fleet.Memory{Pressure: fleet.PressureCritical})
	version := first.Touch(3)
	expect.Soon(t, "a change arrives", func() bool {
		for _, o := range pods.In("first").All() {
			if o.Name == first.Pod(3).Name && o.ResourceVersion == strconv.FormatUint(version, 10) {
				return true
			}
		}
		return false
	})
	first.Create(8)
	expect.Soon(t, "a new object is refused", func() bool { return limited("first") })
	if n := count("first"); n != 49 {
		t.Errorf("%d objects are readable, want the 49 from before", n)
	}

	// The second cluster needs more than there is.
	f.SetMemory(fleet.Memory{Room: 49 * 1536})
	expect.Soon(t, "the first cluster is read again", func() bool { return count("first") == 50 })
	if n := count("second"); n != 0 {
		t.Errorf("%d objects of the second cluster are kept", n)
	}
	f.SetMemory(fleet.Memory{Room: 50 * 1536})
	expect.Eventually(t, time.Minute, func() error {
		if a, b := count("first"), count("second"); a != 50 || b != 50 {
			return fmt.Errorf("with memory again there are %d and %d objects, want 50 each", a, b)
		}
		return nil
	})
}

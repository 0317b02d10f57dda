// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestOrigins_areSeparate checks that a cluster that does not respond delays neither other
// clusters nor its own reviews, that one user does not take all of its requests, and that
// nothing is kept of idle clusters.
func TestOrigins_areSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOrigins(nil)
		end := make(chan struct{})
		var running sync.WaitGroup
		for range 1000 {
			running.Go(func() {
				done, err := o.Admit(t.Context(), "hung", Read, "greedy")
				if err == nil {
					<-end
					done()
					done()
				} else if !apierrors.IsTooManyRequests(err) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := o.Stats(); s.InFlight != 16 || s.Waiting != 64 || s.Rejected != 1000-16-64 {
			t.Errorf("%+v", s)
		}
		began := time.Now()
		for _, c := range []struct {
			cluster string
			purpose Purpose
			user    string
		}{{"hung", Read, "polite"}, {"hung", Review, "greedy"}, {"other", Read, "greedy"}} {
			done, err := o.Admit(t.Context(), c.cluster, c.purpose, c.user)
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				continue
			}
			done()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they wait for %v", took)
		}
		close(end)
		running.Wait()
		if s := o.Stats(); len(o.origins) != 0 || s != (OriginStats{Admitted: 16 + 64 + 3, Rejected: 1000 - 16 - 64}) {
			t.Errorf("left: %d origins, %+v", len(o.origins), s)
		}
	})
}

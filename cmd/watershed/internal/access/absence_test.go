// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/watershed-project/watershed/fleet"
)

// timedRequests is how many requests are timed, half of them for each cluster.
const timedRequests = 2000

// The time of a refusal does not show whether a cluster exists: the difference between the
// medians of a cluster that refuses the credentials and of one that does not exist is not
// larger than between two random halves of all times. A difference that is there is found each
// time, one of chance is not.
func attackTiming(t *testing.T, w *attackedReplica) {
	ann := w.token(w.a, "ann")
	var got, widest time.Duration
	for range 3 {
		if got, widest = timeRefusals(t, w, ann); got <= widest {
			return
		}
	}
	t.Errorf("the medians of a forbidden and an absent cluster differ by %s, three times", got)
}

// timeRefusals returns the difference between the medians, and the widest one of random halves.
func timeRefusals(t *testing.T, w *attackedReplica, ann string) (got, widest time.Duration) {
	t.Helper()
	took := make([]time.Duration, timedRequests)
	next := make(chan int)
	var running sync.WaitGroup
	for range 32 {
		running.Go(func() {
			for i := range next {
				path := "/clusters/b" + configmaps
				if i%2 == 1 {
					path = "/clusters/c" + configmaps
				}
				began := time.Now()
				w.expectCode(t, http.StatusUnauthorized, ann, path)
				took[i] = time.Since(began)
			}
		})
	}
	for i := range took {
		next <- i
	}
	close(next)
	running.Wait()
	difference := func(times []time.Duration) time.Duration {
		var halves [2][]time.Duration
		for i, d := range times {
			halves[i%2] = append(halves[i%2], d)
		}
		return (median(halves[0]) - median(halves[1])).Abs()
	}
	got = difference(took)
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		random.Shuffle(len(took), func(i, j int) { took[i], took[j] = took[j], took[i] })
		widest = max(widest, difference(took))
	}
	t.Logf("medians differ by %s, those of random halves by up to %s; the median is %s", got, widest, median(took))
	return got, widest
}

func median(times []time.Duration) time.Duration {
	times = slices.Clone(times)
	slices.Sort(times)
	return times[len(times)/2]
}

// The limit of unknown tokens does not show whether a cluster exists: a cluster that exists and one
// that does not refuse random tokens with 429 at some time.
func attackLimit(t *testing.T, w *attackedReplica) {
	for _, name := range []string{"b", "c"} {
		var codes [600]atomic.Int64
		// A slow machine sends them so slowly that the limit lets all of them pass.
		for round := 0; round < 20 && codes[http.StatusTooManyRequests].Load() == 0; round++ {
			var running sync.WaitGroup
			for i := range 200 {
				token := fmt.Sprintf("random-%d-%d", round, i)
				running.Go(func() { codes[w.get(t, token, "/clusters/"+name+configmaps).code].Add(1) })
			}
			running.Wait()
		}
		if codes[http.StatusUnauthorized].Load() == 0 || codes[http.StatusTooManyRequests].Load() == 0 {
			t.Errorf("cluster %s: random tokens had %d times 401 and %d times 429", name,
				codes[http.StatusUnauthorized].Load(), codes[http.StatusTooManyRequests].Load())
		}
	}
}

// When another cluster takes the name of one that has left, credentials and decisions of the
// old one are worth nothing, and its objects are not shown to users of the new one.
func attackTakenName(t *testing.T, w *attackedReplica) {
	ann, other := w.token(w.a, "ann"), w.token(w.b, "ann")
	w.expectCode(t, http.StatusOK, ann, "/clusters/a"+configmaps)
	w.expectCode(t, http.StatusUnauthorized, other, "/clusters/a"+configmaps)
	w.grant(t, w.b, "ann", "n2", rbacv1.PolicyRule{
		Verbs:     []string{"get", "list"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	})
	if err := w.directory.Set(fleet.Entry{Name: "a", Config: w.b.Config()}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for w.get(t, ann, "/clusters/a"+configmaps).code != http.StatusUnauthorized {
		if time.Now().After(deadline) {
			t.Fatal("the credentials of the old cluster are still accepted")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for range 50 {
		w.expectCode(t, http.StatusUnauthorized, ann, "/clusters/a"+configmaps)
		if got := w.get(t, other, "/clusters/a"+configmaps); got.code != http.StatusForbidden &&
			got.code != http.StatusServiceUnavailable {
			t.Fatalf("the user of the new cluster reads: %d %.200s", got.code, got.body)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func timeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// flood sends unknown tokens for a time and returns how many got each code.
func flood(t *testing.T, a *Cluster, name string, perSecond, seconds int, address func(int) string) map[int]int {
	t.Helper()
	codes := map[int]int{}
	for i := range perSecond * seconds {
		r := from(address(i), bearer(fmt.Sprintf("%s-%d", name, i)))
		_, err := a.Authenticate(t.Context(), r)
		codes[code(err)]++
		if code(err) == 429 {
			checkStatus(t, err, 429)
		}
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	return codes
}

func TestFlood_oneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good", "late")}
		a, _ := newTestCluster(t, o, nil)
		if got := authenticated(a, from("192.0.2.1:1", bearer("good"))); got != 200 {
			t.Fatal(got)
		}
		// The flood has the address of the valid user, whose token is checked again in the
		// middle of it.
		done := make(chan map[int]int)
		go func() { done <- flood(t, a, "x", 100, 30, func(int) string { return "[2001:db8::1]:1" }) }()
		go func() { done <- flood(t, a, "y", 100, 30, func(int) string { return "192.0.2.1:9" }) }()
		for range 30 {
			time.Sleep(time.Second)
			if got := authenticated(a, from("192.0.2.1:2", bearer("good"))); got != 200 {
				t.Errorf("valid user during the flood: %d", got)
			}
			if got := authenticated(a, from("192.0.2.2:1", bearer("late"))); got != 200 {
				t.Errorf("new user at another address: %d", got)
			}
		}
		for range 2 {
			if codes := <-done; codes[401] < 340 || codes[401] > 350 || codes[401]+codes[429] != 3000 {
				t.Errorf("codes %v, want 350 times 401 and 429 otherwise", codes)
			}
		}
		if n := o.reviews.Load(); n > 720 {
			t.Errorf("%d reviews", n)
		}
	})
}

func TestFlood_manyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good")}
		a, _ := newTestCluster(t, o, nil)
		if got := authenticated(a, bearer("good")); got != 200 {
			t.Fatal(got)
		}
		done := make(chan map[int]int)
		go func() {
			done <- flood(t, a, "x", 1000, 20, func(i int) string {
				return fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>8, i&255)
			})
		}()
		for range 20 {
			time.Sleep(time.Second)
			if got := authenticated(a, bearer("good")); got != 200 {
				t.Errorf("valid user during the flood: %d", got)
			}
		}
		if codes := <-done; codes[401] < 4000 || codes[401] > 4210 || codes[401]+codes[429] != 20000 {
			t.Errorf("codes %v, want 4200 times 401 and 429 otherwise", codes)
		}
		if n := a.tokens.limiter.buckets.Len(); n > maxSources {
			t.Errorf("%d addresses", n)
		}
		if n := a.tokens.refused.Len(); n > maxRefused {
			t.Errorf("%d refused tokens", n)
		}
	})
}

// TestFlood_validTokensOfOneAddress checks that many users behind one proxy are served.
func TestFlood_validTokensOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users()}
		a, _ := newTestCluster(t, o, nil)
		for i := range 150 {
			token := fmt.Sprintf("user-%d", i)
			o.users[token] = ann
			if got := authenticated(a, bearer(token)); got != 200 {
				t.Fatalf("user %d: %d", i, got)
			}
		}
	})
}

func TestFlood_reviewsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		review func(http.ResponseWriter, *http.Request) bool
		want   int
	}{
		"slow origin": {
			func(http.ResponseWriter, *http.Request) bool { time.Sleep(700 * time.Millisecond); return false }, 429,
		},
		"hung origin": {hang, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{users: users("good")}
				a, _ := newTestCluster(t, o, nil)
				if got := authenticated(a, bearer("good")); got != 200 {
					t.Fatal(got)
				}
				time.Sleep(11 * time.Second)
				o.set(func() { o.review = test.review })
				var mu sync.Mutex
				codes := map[int]int{}
				var all sync.WaitGroup
				for i := range 100 {
					all.Go(func() {
						got := authenticated(a, from(fmt.Sprintf("192.0.2.%d:1", i), bearer(fmt.Sprint("x", i))))
						mu.Lock()
						defer mu.Unlock()
						codes[got]++
					})
				}
				time.Sleep(100 * time.Millisecond)
				if test.want == 429 { // the slots of unknown tokens are full
					begin := time.Now()
					if got := authenticated(a, bearer("good")); got != 200 || time.Since(begin) > 700*time.Millisecond {
						t.Errorf("valid user during the flood: %d after %s", got, time.Since(begin))
					}
				}
				all.Wait()
				if codes[test.want] < 60 || codes[test.want]+codes[401] != 100 && test.want == 429 ||
					test.want == 503 && codes[503] != 100 {
					t.Errorf("codes %v", codes)
				}
				if n := o.most.Load(); n > maxReviews+1 {
					t.Errorf("%d reviews at once", n)
				}
			})
		})
	}
}

// TestFlood_waitingIsBounded checks that unknown tokens do not pile up behind a hung origin.
func TestFlood_waitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{review: hang}
		a, _ := newTestCluster(t, o, nil)
		var all sync.WaitGroup
		for i := range 180 {
			all.Go(func() { authenticated(a, from(fmt.Sprintf("192.0.2.%d:1", i), bearer(fmt.Sprint("x", i)))) })
		}
		synctest.Wait()
		a.tokens.mu.Lock()
		n := len(a.tokens.checks)
		a.tokens.mu.Unlock()
		if n != maxWaiting {
			t.Errorf("%d checks, want %d", n, maxWaiting)
		}
		all.Wait()
	})
}

// TestFlood_absentCluster sends the same tokens to a cluster and to one that does not exist. The
// responses are the same, also when another name has been flooded.
func TestFlood_absentCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there, _ := newTestCluster(t, &origin{}, nil)
		absent := NewAbsent()
		defer absent.Close()
		for i := range 1000 {
			_ = absent.Authenticate(from(fmt.Sprintf("192.0.2.%d:1", i%20), bearer(fmt.Sprint("other-", i))), "other")
		}
		codes := map[int]int{}
		for i := range 2000 {
			tokens := bearer(fmt.Sprint("x-", i/2*2)) // each is sent twice
			if i%100 == 0 {
				tokens = &http.Request{} // no token
			}
			r := from(fmt.Sprintf("192.0.2.%d:1", i%7), tokens)
			_, err := there.Authenticate(t.Context(), r)
			codes[code(err)]++
			if got := code(absent.Authenticate(r, "name")); got != code(err) {
				t.Fatalf("request %d: %d, and %d if the cluster exists", i, got, code(err))
			}
			time.Sleep(3 * time.Millisecond)
		}
		if codes[401] < 100 || codes[429] < 100 || codes[401]+codes[429] != 2000 {
			t.Errorf("codes %v, want both", codes)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestReviewer_cachesForItsTime(t *testing.T) {
	for name, status := range map[string]authorizationv1.SubjectAccessReviewStatus{"allow": allow, "deny": deny} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := answering(status)
				r := s.reviewer(t, nil)
				for _, wait := range []time.Duration{0, 5 * time.Second, 4999 * time.Millisecond} {
					time.Sleep(wait)
					d, err := r.Authorize(t.Context(), alice, getPod)
					mustDecide(t, d, err, status.Allowed)
					expect.Equal(t, d.Reason, status.Reason)
				}
				expect.Equal(t, s.calls(), 1)
				time.Sleep(time.Millisecond)
				_, err := r.Authorize(t.Context(), alice, getPod)
				expect.NoError(t, err)
				expect.Equal(t, s.calls(), 2)
				expect.Equal(t, r.Stats(), ReviewerStats{
					Hits: 2, Reviews: 2, Entries: 1, Bytes: entryBytes + len(status.Reason),
				})
			})
		})
	}
}

func TestReviewer_sharesReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		s.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			time.Sleep(time.Second)
			return allow, 0, nil
		})
		r := s.reviewer(t, nil)
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				d, err := r.Authorize(t.Context(), alice, getPod)
				mustDecide(t, d, err, true)
			})
		}
		callers.Wait()
		expect.Equal(t, s.calls(), 1)
		expect.Equal(t, r.Stats().Joined, 49)
	})
}

// TestReviewer_flush checks that no call after a flush sees a decision from before, whether
// it was cached or under way.
func TestReviewer_flush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(allow)
		r := s.reviewer(t, nil)
		d, err := r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
		s.set(deny)
		r.Flush()
		d, err = r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, false)

		// A review that is under way allows the request, and ends after the flush.
		r.Flush()
		s.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			time.Sleep(time.Second)
			return allow, 0, nil
		})
		early := make(chan Decision, 1)
		go func() {
			d, _ := r.Authorize(t.Context(), alice, getPod)
			early <- d
		}()
		synctest.Wait()
		s.set(deny)
		r.Flush()
		d, err = r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, false)
		expect.Equal(t, (<-early).Allowed, true)
		d, err = r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, false)

		// The same, with no other review before its end.
		s.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			time.Sleep(time.Second)
			return allow, 0, nil
		})
		go func() { _, _ = r.Authorize(t.Context(), named(1), getPod) }()
		synctest.Wait()
		r.Flush()
		time.Sleep(2 * time.Second)
		s.set(deny)
		d, err = r.Authorize(t.Context(), named(1), getPod)
		mustDecide(t, d, err, false)
	})
}

// TestReviewer_fresh checks that Fresh does not use a review that started earlier, and that
// such a review does not replace the newer decision.
func TestReviewer_fresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		s.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			time.Sleep(time.Second)
			return allow, 0, nil
		})
		r := s.reviewer(t, nil)
		go func() { _, _ = r.Authorize(t.Context(), alice, getPod) }()
		synctest.Wait()
		s.set(deny)
		d, err := r.Fresh(t.Context(), alice, getPod)
		mustDecide(t, d, err, false)
		time.Sleep(2 * time.Second)
		d, err = r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, false)
		expect.Equal(t, s.calls(), 2)
		s.set(allow)
		d, err = r.Fresh(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
	})
}

// TestReviewer_faults checks that a failure is an error with the right code, that its message
// does not have the cause, and that it is not cached.
func TestReviewer_faults(t *testing.T) {
	status := func(s authorizationv1.SubjectAccessReviewStatus) func(*http.Request) (
		authorizationv1.SubjectAccessReviewStatus, int, error,
	) {
		return func(*http.Request) (authorizationv1.SubjectAccessReviewStatus, int, error) { return s, 0, nil }
	}
	code := func(code int) func(*http.Request) (authorizationv1.SubjectAccessReviewStatus, int, error) {
		return func(*http.Request) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			return authorizationv1.SubjectAccessReviewStatus{}, code, nil
		}
	}
	for name, test := range map[string]struct {
		answer  func(*http.Request) (authorizationv1.SubjectAccessReviewStatus, int, error)
		code    int32
		message string
		after   time.Duration
	}{
		"500": {answer: code(500), code: 503, message: noAnswer},
		"401": {answer: code(401), code: 503, message: badLogin},
		"403": {answer: code(403), code: 503, message: noRight},
		"404": {answer: code(404), code: 503, message: noAnswer},
		"422": {answer: code(422), code: 503, message: noAnswer},
		"429": {answer: code(429), code: 429, message: busy},
		"not decided": {
			answer:  status(authorizationv1.SubjectAccessReviewStatus{EvaluationError: "secret detail"}),
			code:    503,
			message: notEvaluated,
		},
		"both": {
			answer:  status(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}),
			code:    503,
			message: notEvaluated,
		},
		"large": {
			answer: status(authorizationv1.SubjectAccessReviewStatus{
				Allowed: true, Reason: strings.Repeat("x", maxResponse),
			}),
			code:    503,
			message: noAnswer,
		},
		"refused": {answer: func(*http.Request) (s authorizationv1.SubjectAccessReviewStatus, c int, _ error) {
			return s, c, syscall.ECONNREFUSED
		}, code: 503, message: noAnswer},
		"hung": {answer: func(r *http.Request) (s authorizationv1.SubjectAccessReviewStatus, c int, _ error) {
			<-r.Context().Done()
			return s, c, r.Context().Err()
		}, code: 503, message: noAnswer, after: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stub{}
				s.handle(func(r *http.Request,
					_ authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
					return test.answer(r)
				})
				r := s.reviewer(t, nil)
				for i := range 2 {
					start := time.Now()
					_, err := r.Authorize(t.Context(), alice, getPod)
					if err == nil {
						t.Fatal("no error")
					}
					expect.Equal(t, time.Since(start), test.after)
					got := statusOf(t, err)
					expect.Equal(t, got.Code, test.code)
					expect.Equal(t, Unanswered(err), test.message == noAnswer)
					if !strings.Contains(got.Message, test.message) || strings.Contains(got.Message, "secret") {
						t.Errorf("message %q, want %q", got.Message, test.message)
					}
					if !strings.Contains(err.Error(), "cluster stub") {
						t.Errorf("error %q does not name the cluster", err)
					}
					expect.Equal(t, s.calls(), i+1)
				}
				expect.Equal(t, r.Stats(), ReviewerStats{Reviews: 2, Failures: 2})
			})
		})
	}
}

// TestReviewer_evaluationErrors checks the evaluation errors that leave a decision.
func TestReviewer_evaluationErrors(t *testing.T) {
	s := answering(authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "one authorizer failed"})
	r := s.reviewer(t, nil)
	d, err := r.Authorize(t.Context(), alice, getPod)
	mustDecide(t, d, err, true)
	s.set(authorizationv1.SubjectAccessReviewStatus{
		EvaluationError: "spec.resourceAttributes.fieldSelector ignored due to parse error; " +
			"spec.resourceAttributes.labelSelector partially ignored due to parse error",
	})
	d, err = r.Fresh(t.Context(), alice, getPod)
	mustDecide(t, d, err, false)
}

// TestReviewer_callersDeadline checks that a caller with a deadline gets 503 then, and that the
// review goes on for the next caller.
func TestReviewer_callersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		s.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
			time.Sleep(1500 * time.Millisecond)
			return allow, 0, nil
		})
		r := s.reviewer(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Authorize(ctx, alice, getPod)
		expect.Equal(t, statusOf(t, err).Code, 503)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		d, err := r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
		expect.Equal(t, s.calls(), 1)
	})
}

// TestReviewer_limitsConcurrency sends more reviews to a cluster that hangs than may run and
// wait.
func TestReviewer_limitsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		s.handle(func(r *http.Request,
			_ authorizationv1.SubjectAccessReviewSpec) (s authorizationv1.SubjectAccessReviewStatus, _ int, _ error) {
			<-r.Context().Done()
			return s, 0, r.Context().Err()
		})
		r := s.reviewer(t, &Options{Concurrency: 4, Queue: 6})
		var callers sync.WaitGroup
		var mu sync.Mutex
		codes := map[int32]int{}
		start := time.Now()
		for i := range 15 {
			callers.Go(func() {
				_, err := r.Authorize(t.Context(), named(i), getPod)
				code := statusOf(t, err).Code
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			})
		}
		callers.Wait()
		expect.Equal(t, codes, map[int32]int{503: 10, 429: 5})
		expect.Equal(t, s.most, 4)
		expect.Equal(t, time.Since(start), 10*time.Second)
		expect.Equal(t, r.Stats().Refused, 5)
		s.set(allow)
		d, err := r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
	})
}

func TestReviewer_close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(allow)
		r := NewReviewer(s.cluster(t), nil)
		_, err := r.Authorize(t.Context(), alice, getPod)
		expect.NoError(t, err)
		s.handle(func(r *http.Request,
			_ authorizationv1.SubjectAccessReviewSpec) (s authorizationv1.SubjectAccessReviewStatus, _ int, _ error) {
			<-r.Context().Done()
			return s, 0, r.Context().Err()
		})
		ended := make(chan error, 1)
		go func() {
			_, err := r.Authorize(t.Context(), named(1), getPod)
			ended <- err
		}()
		synctest.Wait()
		start := time.Now()
		r.Close()
		expect.Equal(t, statusOf(t, <-ended).Code, 503)
		expect.Equal(t, time.Since(start), 0)
		_, err = r.Authorize(t.Context(), alice, getPod)
		expect.Equal(t, statusOf(t, err).Code, 503)
	})
}

func TestSelfReviewer(t *testing.T) {
	s := answering(allow)
	r := NewSelfReviewer(s.cluster(t), nil)
	defer r.Close()
	for range 2 {
		d, err := r.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
	}
	d, err := r.Authorize(t.Context(), named(1), getPod)
	mustDecide(t, d, err, true)
	expect.Equal(t, s.paths, []string{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"})
	expect.Equal(t, s.specs[0].User, "")
	expect.Equal(t, s.specs[0].ResourceAttributes.Resource, "pods")
	s.handle(func(*http.Request, authorizationv1.SubjectAccessReviewSpec) (s authorizationv1.SubjectAccessReviewStatus,
		_ int, _ error) {
		return s, 403, nil
	})
	_, err = r.Fresh(t.Context(), alice, getPod)
	expect.Equal(t, statusOf(t, err).Message, noSelfRight)
}

// TestReviewer_memory checks that 100,000 users, some with long names, selectors and groups,
// cost no more than the limits.
func TestReviewer_memory(t *testing.T) {
	defaults := (*Options)(nil).withDefaults()
	c := newCache(defaults.Entries, defaults.Bytes)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, now := heap(), time.Now()
	for i := range 100_000 {
		user, a := named(i), getPod
		a.FieldSelector = strings.Repeat("f", i%500)
		user.Groups = append(user.Groups, strings.Repeat("g", i%300))
		reason := strings.Repeat("r", i%300)
		c.put(keyOf(user, &a), entry{
			decision: Decision{Allowed: true, Reason: reason}, sequence: uint64(i), sent: now, ttl: time.Minute,
		}, now)
		if c.Len() > defaults.Entries || c.Bytes() > defaults.Bytes {
			t.Fatalf("%d entries of %d bytes", c.Len(), c.Bytes())
		}
	}
	used := heap() - before
	t.Logf("%d entries, counted %d bytes, measured %d", c.Len(), c.Bytes(), used)
	if used > c.Bytes()*5/4 {
		t.Errorf("%d bytes are in use, %d are counted", used, c.Bytes())
	}
	c.expire(now.Add(time.Minute))
	expect.Equal(t, []int{c.Len(), c.Bytes()}, []int{0, 0})
	runtime.KeepAlive(c)
}

// TestCache_dropsByUse checks which entries are dropped.
func TestCache_dropsByUse(t *testing.T) {
	now := time.Now()
	c := newCache(3, 1<<20)
	put := func(id byte) {
		c.put(reviewKey{id}, entry{sequence: uint64(id), sent: now, ttl: time.Second}, now)
	}
	put(1)
	put(2)
	put(3)
	c.get(reviewKey{1}, now)
	put(4)
	_, second := c.get(reviewKey{2}, now)
	_, first := c.get(reviewKey{1}, now)
	if second || !first {
		t.Error("the entry that was used last was dropped")
	}
	// A decision of an earlier review does not replace a later one.
	c.put(reviewKey{4}, entry{sequence: 1, sent: now, ttl: time.Second, decision: Decision{Allowed: true}}, now)
	if e, _ := c.get(reviewKey{4}, now); e.decision.Allowed {
		t.Error("an earlier review has replaced a later one")
	}
	// New entries push out expired ones.
	now = now.Add(time.Second)
	put(5)
	put(6)
	expect.Equal(t, c.Len(), 2)
	c = newCache(100, 3*entryBytes)
	for id := range byte(10) {
		put(id)
	}
	expect.Equal(t, []int{c.Len(), c.Bytes()}, []int{3, 3 * entryBytes})
}

func BenchmarkAuthorize_cached(b *testing.B) {
	s := answering(allow)
	r := s.reviewer(b, &Options{AllowTTL: time.Hour})
	user := *alice
	user.Groups = []string{"a", "b", "c", "d", "system:authenticated"}
	if _, err := r.Authorize(b.Context(), &user, getPod); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Authorize(b.Context(), &user, getPod); err != nil {
			b.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica"
)

// TestOrigin_isBounded checks that a cluster which does not respond gets a limited number
// of requests and of watches, that any more are refused at once, that other clusters and
// reads of the copy are not affected, and that a place is free when its client has left.
func TestOrigin_isBounded(t *testing.T) {
	w, origins := newOrigins(t, 2, nil)
	w.until(http.StatusOK, w.pods(0))
	w.until(http.StatusOK, w.pods(1))
	for _, c := range []struct {
		query string
		most  int
	}{
		{"?labelSelector=mine", originRequests},
		{"?watch=1&labelSelector=mine", originWatches},
	} {
		reached := make(chan struct{}, 100)
		origins[0].answers(func(_ http.ResponseWriter, r *http.Request) bool {
			if !isRead(r) {
				return false
			}
			reached <- struct{}{}
			<-r.Context().Done()
			return true
		})
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range c.most {
			asking.Go(func() {
				if resp, err := w.get(ctx, w.pods(0)+c.query+"&watershedRead=consistent"); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		for range c.most {
			<-reached
		}
		began := time.Now()
		code, header, status := w.ask(w.pods(0) + c.query + "&watershedRead=consistent")
		if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" ||
			status.Reason != metav1.StatusReasonTooManyRequests ||
			!strings.Contains(status.Message, "passed on to cluster") {
			t.Errorf("%s: one more gets %d, Retry-After %q, %s", c.query, code, header.Get("Retry-After"),
				status.Message)
		}
		if took := time.Since(began); took >= originTimeout {
			t.Errorf("%s: that took %v", c.query, took)
		}
		for _, path := range []string{w.pods(0), w.pods(1), w.pods(1) + "?watershedRead=consistent"} {
			if code, _, status := w.ask(path); code != http.StatusOK {
				t.Errorf("%s beside %s: %d %s", path, c.query, code, status.Message)
			}
		}
		cancel()
		asking.Wait()
		origins[0].answers(nil)
		w.until(http.StatusOK, w.pods(0)+"?watershedRead=consistent")
	}
}

// TestOrigin_shareOfAUser: one user cannot take all places for consistent reads of a cluster.
func TestOrigin_shareOfAUser(t *testing.T) {
	w, origins := newOriginsWith(t, 1, nil, &replica.Options{
		OriginTimeout: time.Minute, OriginRequests: originRequests,
		Authorize: func(r *http.Request, _ *replica.Request) (*replica.Access, error) {
			return &replica.Access{User: r.Header.Get("Authorization")}, nil
		},
	})
	w.until(http.StatusOK, w.pods(0))
	reached := make(chan struct{}, 100)
	origins[0].answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if isRead(r) {
			reached <- struct{}{}
			<-r.Context().Done()
		}
		return isRead(r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range originRequests / 2 {
		asking.Go(func() {
			if resp, err := w.get(ctx, w.pods(0)+"?labelSelector=mine&watershedRead=consistent", "Authorization",
				"Bearer greedy"); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for range originRequests / 2 {
		<-reached
	}
	for token, want := range map[string]int{
		"Bearer greedy": http.StatusTooManyRequests, "Bearer other": http.StatusOK,
	} {
		if code, _, status := w.ask(w.pods(0)+"?watershedRead=consistent", "Authorization", token); code != want {
			t.Errorf("%s: %d %s, want %d", token, code, status.Message, want)
		}
	}
	cancel()
	asking.Wait()
}

// TestOrigin_bodyStalls checks that a response which begins and does not go on is cut off,
// and gives its place back.
func TestOrigin_bodyStalls(t *testing.T) {
	w, origins := newOrigins(t, 1, nil)
	w.until(http.StatusOK, w.pods(0))
	origins[0].answers(func(w http.ResponseWriter, r *http.Request) bool {
		if !isRead(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"items":[`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	began := time.Now()
	resp, err := w.get(t.Context(), w.pods(0)+"?labelSelector=mine&watershedRead=consistent")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a part looks like the whole")
	}
	if took := time.Since(began); took < originTimeout/2 || took > originTimeout+5*time.Second {
		t.Errorf("it was cut off after %v", took)
	}
}

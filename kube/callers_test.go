// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// TestCheckCallers has servers that distinguish callers, and proxies that do not. Forward sends
// nothing to the latter.
func TestCheckCallers(t *testing.T) {
	type reply struct {
		code int
		body string
	}
	review := func(user string) reply {
		return reply{
			http.StatusCreated, fmt.Sprintf(`{"kind":"SelfSubjectReview","status":{"userInfo":{"username":%q}}}`, user),
		}
	}
	forbidden := func(user string) reply {
		return reply{
			http.StatusForbidden, fmt.Sprintf(
				`{"kind":"Status","message":"selfsubjectreviews.authentication.k8s.io is forbidden: User \"%s\" cannot create resource"}`, user,
			),
		}
	}
	unauthorized := reply{http.StatusUnauthorized, `{"kind":"Status"}`}
	const good, indistinct, unknown = "good", "indistinct", "unknown"
	for name, c := range map[string]struct {
		none, random reply // to a request without a token, and with a random one
		want         string
	}{
		"no anonymous users":                       {unauthorized, unauthorized, good},
		"anonymous users without rights":           {forbidden(anonymousUser), unauthorized, good},
		"anonymous users with all rights":          {review(anonymousUser), unauthorized, good},
		"unknown tokens are anonymous":             {review(anonymousUser), review(anonymousUser), good},
		"a proxy with a certificate":               {review("operator"), review("operator"), indistinct},
		"a proxy that adds a missing token":        {review("operator"), unauthorized, indistinct},
		"a proxy that replaces tokens":             {unauthorized, review("operator"), indistinct},
		"a proxy whose user may not review itself": {forbidden("operator"), forbidden("operator"), indistinct},
		"a user with the name in its name":         {forbidden("system:anonymous:x"), unauthorized, indistinct},
		"a page": {
			reply{http.StatusOK, "<html>"},
			reply{http.StatusOK, "<html>"},
			indistinct,
		},
		"a redirect":            {reply{http.StatusFound, ""}, unauthorized, indistinct},
		"a server that fails":   {reply{http.StatusBadGateway, ""}, unauthorized, unknown},
		"a server that is busy": {unauthorized, reply{http.StatusTooManyRequests, ""}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			var checked, passed atomic.Int32
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != selfReviewPath {
					passed.Add(1)
					return
				}
				checked.Add(1)
				say := c.none
				if r.Header.Get("Authorization") != "" {
					say = c.random
				}
				w.WriteHeader(say.code)
				_, _ = io.WriteString(w, say.body)
			}))
			defer server.Close()
			err := forward(t, server.URL, 3)
			switch {
			case c.want == good && (err != nil || passed.Load() != 3 || checked.Load() != 2):
				t.Errorf("%v, %d of 3 requests passed on after %d checks", err, passed.Load(), checked.Load())
			case c.want != good && (err == nil || errors.Is(err, ErrIndistinctCallers) != (c.want == indistinct) ||
				passed.Load() != 0):
				t.Errorf("%v, %d requests passed on; want %s", err, passed.Load(), c.want)
			}
		})
	}
}

// A server without encryption is not sent the token of a caller.
func TestCheckCallers_withoutEncryption(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the server receives a request")
	}))
	defer server.Close()
	if err := forward(t, server.URL, 1); !errors.Is(err, ErrIndistinctCallers) {
		t.Error(err)
	}
}

// forward sends requests of a caller to a server, and returns the last error.
func forward(t *testing.T, server string, requests int) (last error) {
	t.Helper()
	c, err := FromConfig(&rest.Config{
		Host: server, BearerToken: "own", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	for range requests {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer of-the-caller")
		resp, err := c.Forward(r, "", false)
		if last = err; err == nil {
			_ = resp.Body.Close()
		}
	}
	return last
}

// A result does not last: behind the same address there can be a proxy tomorrow.
func TestCallersCheck_age(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var says error
		sent := 0
		k := newCallersCheck(func(context.Context) error { sent++; return says })
		unreachable := errors.New("unreachable")
		for i, step := range []struct {
			wait time.Duration
			says error
			sent int
			want error
		}{
			{0, unreachable, 1, unreachable},
			{callersPause / 2, nil, 1, unreachable},
			{callersPause / 2, nil, 2, nil},
			{callersAge - 1, ErrIndistinctCallers, 2, nil},
			{1, ErrIndistinctCallers, 3, ErrIndistinctCallers},
			{callersPause - 1, nil, 3, ErrIndistinctCallers},
			{1, unreachable, 4, unreachable}, // a good result before a bad one counts no more
			{callersPause, nil, 5, nil},
			{callersAge, unreachable, 6, nil},
			{callersGrace - callersAge - 1, unreachable, 7, nil},
			{callersPause, unreachable, 8, unreachable},
		} {
			time.Sleep(step.wait)
			says = step.says
			if err := k.check(t.Context()); !errors.Is(err, step.want) || sent != step.sent {
				t.Errorf("step %d: %v after %d checks, want %v after %d", i, err, sent, step.want, step.sent)
			}
		}
	})
}

// Callers share a check. One that leaves leaves no result, and a check that hangs ends.
func TestCallersCheck_isShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		hanging := true
		k := newCallersCheck(func(ctx context.Context) error {
			sent++
			if hanging {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Second)
			return nil
		})
		left, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.check(left); !errors.Is(err, context.DeadlineExceeded) || k.err != nil {
			t.Errorf("%v, and the result is %v", err, k.err)
		}
		began := time.Now()
		if err := k.check(t.Context()); err == nil || time.Since(began) != callersTimeout {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		time.Sleep(callersPause)
		hanging, sent = false, 0
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := k.check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent != 1 {
			t.Errorf("%d checks of 100 callers", sent)
		}
	})
}

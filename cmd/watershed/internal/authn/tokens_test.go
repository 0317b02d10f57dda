// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

var ann = authenticationv1.UserInfo{Username: "ann", UID: "1", Groups: []string{"dev", "system:authenticated"}}

func users(tokens ...string) map[string]authenticationv1.UserInfo {
	m := map[string]authenticationv1.UserInfo{}
	for _, t := range tokens {
		m[t] = ann
	}
	return m
}

func TestAuthenticate_remembersTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good", "short")}
		a, _ := newTestCluster(t, o, nil)
		steps := func(token string, want int, wait time.Duration, reviews int32) {
			t.Helper()
			time.Sleep(wait)
			o.reviews.Store(0)
			if got := authenticated(a, bearer(token)); got != want || o.reviews.Load() != reviews {
				t.Errorf("%.10s: code %d after %d reviews, want %d after %d", token, got, o.reviews.Load(), want,
					reviews)
			}
		}
		steps("good", 200, 0, 1)
		steps("good", 200, 9*time.Second, 0)
		o.set(func() { delete(o.users, "good") })
		steps("good", 200, 0, 0)
		steps("good", 401, time.Second, 1)
		o.set(func() { o.users["good"] = ann })
		steps("good", 401, 9*time.Second, 0)
		steps("good", 200, time.Second, 1)

		short := jwt(fmt.Sprintf(`{"exp":%d}`, time.Now().Unix()+3))
		o.set(func() { o.users[short] = ann })
		steps(short, 200, 0, 1)
		steps(short, 200, 2*time.Second, 0)
		steps(short, 200, time.Second, 1) // the origin decides, but nothing is remembered
		steps(short, 200, 0, 1)
	})
}

func TestAuthenticate_identity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exp := time.Now().Add(time.Hour)
		token := jwt(fmt.Sprintf(`{"exp":%d}`, exp.Unix()))
		o := &origin{users: map[string]authenticationv1.UserInfo{
			"plain":     {Username: "bob", Groups: []string{"ops"}},
			token:       {Username: "bob", Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
			"anonymous": {Username: "system:anonymous", Groups: []string{"system:unauthenticated"}},
			"group":     {Username: "x", Groups: []string{"system:unauthenticated"}},
			"nameless":  {Groups: []string{"system:masters"}},
		}}
		a, _ := newTestCluster(t, o, nil)
		id, err := a.Authenticate(t.Context(), bearer("plain"))
		if err != nil || id.Username != "bob" || !slices.Equal(id.Groups, []string{"ops", "system:authenticated"}) ||
			!id.Expires.IsZero() || id.Method != MethodToken {
			t.Errorf("%+v, %v", id, err)
		}
		id, err = a.Authenticate(t.Context(), bearer(token))
		if err != nil || !id.Expires.Equal(exp) || id.Extra["k"][0] != "v" ||
			!slices.Equal(id.Groups, []string{"system:authenticated"}) {
			t.Errorf("%+v, %v", id, err)
		}
		for _, token := range []string{"anonymous", "group", "nameless", "unknown"} {
			_, err := a.Authenticate(t.Context(), bearer(token))
			checkStatus(t, err, 401)
		}
	})
}

func TestAuthenticate_withoutCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{}
		a, _ := newTestCluster(t, o, nil)
		r := bearer("")
		for name, value := range map[string]string{
			"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Uid": "1",
			"X-Remote-Extra-Scopes": "all",
			"X-Forwarded-User":      "admin", "X-Forwarded-Client-Cert": "Subject=\"CN=admin\"", "X-Ssl-Cert": "admin",
		} {
			r.Header.Set(name, value)
		}
		_, err := a.Authenticate(t.Context(), r)
		checkStatus(t, err, 401)
		if err.Error() != "Unauthorized" {
			t.Errorf("message %q", err.Error())
		}
		for _, header := range []string{"Bearer t\u00f6ken", "Bearer " + strings.Repeat("x", maxToken+1)} {
			r.Header.Set("Authorization", header)
			_, err = a.Authenticate(t.Context(), r)
			checkStatus(t, err, 401)
		}
		if n := o.reviews.Load() + o.reads.Load(); n != 0 {
			t.Errorf("%d requests to the origin", n)
		}
	})
}

func TestAuthenticate_sharesReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good"), review: func(http.ResponseWriter, *http.Request) bool {
			time.Sleep(time.Second)
			return false
		}}
		a, _ := newTestCluster(t, o, nil)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				if got := authenticated(a, from(fmt.Sprintf("192.0.2.%d:1", i%250), bearer("good"))); got != 200 {
					t.Errorf("code %d", got)
				}
			})
		}
		all.Wait()
		if n := o.reviews.Load(); n != 1 {
			t.Errorf("%d reviews, want 1", n)
		}
	})
}

// TestAuthenticate_trouble checks that a token is neither accepted nor refused if the
// origin does not say whether it is valid.
func TestAuthenticate_trouble(t *testing.T) {
	const echo = "page of a proxy with s3cret"
	for name, test := range map[string]struct {
		review  func(http.ResponseWriter, *http.Request) bool
		reviews int32
		message string
		log     string
	}{
		"hung": {hang, 1, reviewUnavailable, "context deadline exceeded"},
		"refused": {
			func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Test-Fault", "1")
				return true
			}, 1, reviewUnavailable, "connection refused",
		},
		"500": {status(500, echo), 2, reviewUnavailable, "[token]"},
		"502": {status(502, echo), 2, reviewUnavailable, "[token]"},
		"429": {status(429, ""), 1, reviewUnavailable, "too many"},
		"401": {status(401, ""), 1, reviewUnavailable, "provide credentials"},
		"404": {status(404, ""), 1, reviewUnavailable, "not find"},
		"403": {
			status(403, echo), 1, reviewForbidden, "the right create tokenreviews.authentication.k8s.io is missing",
		},
		"redirect": {func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://other.example", http.StatusTemporaryRedirect)
			return true
		}, 1, reviewUnavailable, "307"},
		"no JSON":   {status(201, echo), 1, reviewUnavailable, "cannot check tokens"},
		"too large": {status(201, strings.Repeat(" ", maxResponse+1)), 1, reviewUnavailable, "too large"},
		"user and error": {func(w http.ResponseWriter, _ *http.Request) bool {
			respond(w, 201, authenticationv1.TokenReview{
				Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: ann, Error: "s3cret"},
			})
			return true
		}, 1, reviewUnavailable, "a user and an error: [token]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &origin{users: users("s3cret"), review: test.review}
				a, log := newTestCluster(t, o, nil)
				begin := time.Now()
				_, err := a.Authenticate(t.Context(), bearer("s3cret"))
				checkStatus(t, err, 503, "s3cret", "replicas-own")
				if err.Error() != test.message {
					t.Errorf("message %q", err.Error())
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("took %s", took)
				}
				if text := log.String(); !strings.Contains(text, test.log) || !strings.Contains(text, "cluster=blue") ||
					strings.Contains(text, "s3cret") || strings.Contains(text, "replicas-own") || len(text) > 1000 {
					t.Errorf("log %.2000s", text)
				}
				if n := o.reviews.Load(); n != test.reviews {
					t.Errorf("%d reviews, want %d", n, test.reviews)
				}
				o.set(func() { o.review = nil })
				if got := authenticated(a, bearer("s3cret")); got != 200 {
					t.Errorf("after the trouble: %d", got)
				}
			})
		})
	}
}

func TestAuthenticate_warnsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good"), review: status(403, "")}
		a, log := newTestCluster(t, o, nil)
		for range 119 {
			authenticated(a, bearer("good"))
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings in two minutes", n)
		}
	})
}

func TestAuthenticate_callerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good"), review: func(http.ResponseWriter, *http.Request) bool {
			time.Sleep(2 * time.Second)
			return false
		}}
		a, _ := newTestCluster(t, o, nil)
		go func() { // the first caller gives up, the second one must not notice
			r := bearer("good")
			ctx, cancel := timeout(t, time.Second)
			defer cancel()
			_, err := a.Authenticate(ctx, r)
			checkStatus(t, err, 503)
		}()
		time.Sleep(500 * time.Millisecond)
		if got := authenticated(a, bearer("good")); got != 200 || o.reviews.Load() != 1 {
			t.Errorf("code %d after %d reviews", got, o.reviews.Load())
		}
	})
}

func TestClose_cancelsReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{review: hang, config: hang}
		a, _ := newTestCluster(t, o, nil)
		begin := time.Now()
		time.AfterFunc(time.Second, a.Close)
		_, err := a.Authenticate(t.Context(), bearer("good"))
		checkStatus(t, err, 503)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %s", took)
		}
		_, err = a.Authenticate(t.Context(), bearer("good"))
		checkStatus(t, err, 503)
		if n := o.reviews.Load(); n != 1 {
			t.Errorf("%d reviews, one was after Close", n)
		}
	})
}

func TestAuthenticate_audiences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good")}
		a, _ := newTestCluster(t, o, &Options{Audiences: []string{"watershed", "https://origin"}})
		if got := authenticated(a, bearer("good")); got != 200 ||
			!slices.Equal(o.last.Audiences, []string{"watershed", "https://origin"}) {
			t.Errorf("code %d, audiences %q", got, o.last.Audiences)
		}
		b, _ := newTestCluster(t, o, &Options{Audiences: []string{"watershed"}})
		if got := authenticated(b, bearer("good")); got != 401 {
			t.Errorf("code %d for a token without our audience", got)
		}
		c, _ := newTestCluster(t, o, nil)
		if got := authenticated(c, bearer("good")); got != 200 || o.last.Audiences != nil {
			t.Errorf("code %d, audiences %q", got, o.last.Audiences)
		}
	})
}

func TestReauthenticate_token(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{users: users("good")}
		a, _ := newTestCluster(t, o, nil)
		id, err := a.Authenticate(t.Context(), bearer("good"))
		if err != nil {
			t.Fatal(err)
		}
		check := func(name string, want int, reviews int32) {
			t.Helper()
			time.Sleep(3 * time.Second)
			o.reviews.Store(0)
			for range 3 {
				if err := a.Reauthenticate(t.Context(), bearer("good"), id); code(err) != want {
					t.Errorf("%s: %v, want %d", name, err, want)
				}
			}
			if n := o.reviews.Load(); n != reviews {
				t.Errorf("%s: %d reviews, want %d", name, n, reviews)
			}
		}
		user := func(u authenticationv1.UserInfo) { o.set(func() { o.users["good"] = u }) }
		check("unchanged", 200, 1) // the others share the result
		user(authenticationv1.UserInfo{
			Username: "ann",
			UID:      "1",
			Groups:   []string{"more", "dev"},
			Extra:    map[string]authenticationv1.ExtraValue{"assertion": {"x"}},
		})
		check("more groups", 200, 1)
		user(authenticationv1.UserInfo{Username: "ann", UID: "1"})
		check("group lost", 401, 1)
		user(authenticationv1.UserInfo{Username: "ann", UID: "2", Groups: []string{"dev"}})
		check("another UID", 401, 1)
		user(authenticationv1.UserInfo{Username: "bob", UID: "1", Groups: []string{"dev"}})
		check("another name", 401, 1)
		user(ann)
		o.set(func() { o.review = status(503, "") })
		check("origin fails", 503, 3)
		o.set(func() { o.review = nil; o.users = nil })
		check("revoked", 401, 1)
		if got := authenticated(a, bearer("good")); got != 401 {
			t.Errorf("after the check: %d", got)
		}
		if err := a.Reauthenticate(t.Context(), bearer(""), id); code(err) != 401 {
			t.Errorf("without the token: %v", err)
		}
		const later = "later"
		o.set(func() { o.users = users(later) })
		if err := a.Reauthenticate(t.Context(), bearer(later),
			&Identity{UserInfo: ann, Method: MethodToken}); err != nil {
			t.Errorf("token that is not in the cache: %v", err)
		}
		if err := a.Reauthenticate(t.Context(), bearer(later), &Identity{
			UserInfo: ann, Method: MethodToken, Expires: time.Now(),
		}); code(err) != 401 {
			t.Errorf("expired: %v", err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/kube"
)

// TestAuthenticate_selfReview has a cluster that lets the program review no tokens, directly and
// behind proxies that add the credentials of an operator. Behind these nobody knows whose a token
// is, so none is accepted, also not the operator's.
func TestAuthenticate_selfReview(t *testing.T) {
	for name, c := range map[string]struct {
		adds    func(r *http.Request) bool // whether the request gets the operator's credentials
		plain   bool
		code    int // of the token of ann
		message string
	}{
		"an API server": {code: 200},
		"a proxy with a certificate": {
			adds: func(*http.Request) bool { return true }, code: 503, message: reviewIndistinct,
		},
		"a proxy that adds a token": {
			adds:    func(r *http.Request) bool { return r.Header.Get("Authorization") == "" },
			code:    503,
			message: reviewIndistinct,
		},
		"an API server without https": {plain: true, code: 503, message: reviewIndistinct},
		"a proxy without https": {
			plain: true, adds: func(*http.Request) bool { return true }, code: 503, message: reviewIndistinct,
		},
		"a proxy that knows some tokens": {
			adds:    func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer ann" },
			code:    503,
			message: reviewIndistinct,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if agent := r.UserAgent(); agent != rest.DefaultKubernetesUserAgent() {
					t.Errorf("%s has the user agent %q", r.URL.Path, agent)
				}
				user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				if c.adds != nil && c.adds(r) {
					user = "operator"
				}
				switch {
				case user != "ann" && user != "operator":
					respond(w, http.StatusUnauthorized, map[string]any{
						"kind":       "Status",
						"apiVersion": "v1",
						"status":     "Failure",
						"reason":     "Unauthorized",
						"code":       401,
					})
				case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
					var review authenticationv1.SelfSubjectReview
					_ = json.NewDecoder(r.Body).Decode(&review)
					review.Status.UserInfo.Username = user
					respond(w, http.StatusCreated, review)
				default:
					respond(w, http.StatusForbidden, map[string]any{
						"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
					})
				}
			}))
			if c.plain {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			cluster, err := kube.FromConfig(&rest.Config{
				Host: server.URL, BearerToken: "operator", TLSClientConfig: rest.TLSClientConfig{Insecure: !c.plain},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.CloseIdleConnections()
			log := &lockedBuffer{}
			a := New(cluster, &Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			defer a.Close()
			id, err := a.Authenticate(t.Context(), bearer("ann"))
			if code(err) != c.code || c.code == 200 && id.Username != "ann" ||
				c.code != 200 && err.Error() != c.message {
				t.Errorf("the token of ann: %v, %v, want %d", id, err, c.code)
			}
			want := c.code
			if want == 200 {
				want = 401
			}
			if id, err := a.Authenticate(t.Context(), bearer("made-up")); code(err) != want {
				t.Errorf("a made-up token: %v, %v, want %d", id, err, want)
			}
			if logged := strings.Contains(log.String(), "callers are not distinguished"); logged != (c.code == 503) {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

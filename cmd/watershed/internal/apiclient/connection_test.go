// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestConnection_refused checks what a 401 for the whole fleet says: which flag the server lacks if it has nobody who
// authenticates callers, and otherwise which credentials it accepts.
func TestConnection_refused(t *testing.T) {
	for _, c := range []struct {
		name string
		is   state.Server
		want string
	}{
		{"neither", state.Server{}, "runs without --home and --oidc-issuer-url; restart it with --home CLUSTER"},
		{"home", state.Server{Home: "one"}, "name a context of its home cluster"},
		{"issuer", state.Server{Issuer: true}, "name a context of its home cluster"},
	} {
		s := state.Dir{Path: t.TempDir()}
		expect.NoError(t, s.Open())
		c.is.Address, c.is.OtherAuthority = "192.0.2.1:7443", true
		withdraw, err := s.Announce(c.is)
		expect.NoError(t, err)
		defer withdraw()
		target, err := LocalTarget(s, "")
		expect.NoError(t, err)
		connection := &Connection{URL: target.URL, target: target, credentials: "mine"}
		err = connection.refused(&http.Response{Status: "401 Unauthorized", StatusCode: http.StatusUnauthorized})
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `context "mine"`) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	remote := &Connection{target: &Target{URL: "https://replica.example"}, credentials: "mine"}
	err := remote.refused(&http.Response{Status: "401 Unauthorized", StatusCode: http.StatusUnauthorized})
	const want = "a server without --home and --oidc-issuer-url accepts only its owner"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("a server elsewhere: %v, want %s", err, want)
	}
}

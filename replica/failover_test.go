// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// twoReplicas runs a test with two replicas of one cluster, eu, each with its own connection to it.
func twoReplicas(t *testing.T, g *gate, test func(t *testing.T, one, other *pipedReplica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		prepare := func(w *pipedReplica) { w.options.Authorize = g.authorize }
		one, stop := newPipedReplica(t, []string{"eu"}, prepare)
		defer stop()
		other, stop := newPipedReplica(t, []string{"eu"}, prepare)
		defer stop()
		time.Sleep(10 * time.Second)
		test(t, one, other)
	})
}

// TestFailover_clusterTokens continues lists below /clusters at another replica, and by callers that
// did not begin them. A token gives nobody more than the list at its version.
func TestFailover_clusterTokens(t *testing.T) {
	g := newGate()
	g.allow("alice", "eu")
	g.allow("bob", "*")
	twoReplicas(t, g, func(t *testing.T, one, other *pipedReplica) {
		const path = "/clusters/eu" + configMaps
		_, _, body := one.as("alice", path+"?limit=1")
		names, token := placed(t, body)
		if !slices.Equal(names, []string{"/a"}) || token == "" {
			t.Fatalf("the first page is %v with the token %q", names, token)
		}
		for _, w := range []*pipedReplica{one, other} {
			for _, caller := range []string{"alice", "bob"} {
				code, _, body := w.as(caller, path+"?limit=1&continue="+token)
				if names, next := placed(t, body); !slices.Equal(names, []string{"/b"}) || next != "" {
					t.Errorf("the second page for %s is %d %v with the token %q", caller, code, names, next)
				}
			}
			// The list of another namespace has nothing after the key.
			code, _, body := w.as("alice", "/clusters/eu/api/v1/namespaces/other/configmaps?continue="+token)
			if names, _ := placed(t, body); code != http.StatusOK || len(names) > 0 {
				t.Errorf("another namespace: %d %v", code, names)
			}
			if code, _, body := w.as("carol", path+"?limit=1&continue="+token); code != http.StatusForbidden {
				t.Errorf("a caller without rights: %d %s", code, body)
			}
			if code, _, body := w.as("alice", "/fleet"+configMaps+"?continue="+token); code != http.StatusBadRequest {
				t.Errorf("the list of the fleet: %d %s", code, body)
			}
			for name, forged := range forgeries(t, token) {
				if name == "seal" || name == "unsealed" {
					continue // there is none
				}
				code, _, body := w.as("alice", path+"?limit=1&continue="+forged)
				exact, _, _ := w.as("alice", path+"?resourceVersionMatch=Exact&resourceVersion="+versionOf(t, forged))
				if code != exact {
					t.Errorf("a token with another %s: %d, the list at its version: %d: %s", name, code, exact, body)
				}
			}
		}
	})
}

// TestFailover_tokenAhead continues a list at a replica whose copy is behind: it waits.
func TestFailover_tokenAhead(t *testing.T) {
	g := newGate()
	g.allow("alice", "eu")
	twoReplicas(t, g, func(t *testing.T, one, other *pipedReplica) {
		const path = "/clusters/eu" + configMaps
		one.origins["eu"].add("c", 12)
		synctest.Wait()
		_, _, body := one.as("alice", path+"?limit=2")
		_, token := placed(t, body)
		late := time.AfterFunc(2*time.Second, func() { other.origins["eu"].add("c", 12) })
		defer late.Stop()
		code, _, body := other.as("alice", path+"?continue="+token)
		if names, _ := placed(t, body); code != http.StatusOK || !slices.Equal(names, []string{"/c"}) {
			t.Errorf("the second page: %d %s", code, body)
		}
	})
}

// versionOf returns the version in a continue token.
func versionOf(t *testing.T, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Version int64 `json:"rv"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(fields.Version, 10)
}

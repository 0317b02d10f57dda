// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
			// A token of kube-apiserver.
			theirs := base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":10,"start":"/a\u0000"}`))
			_, _, page := w.as("alice", "/clusters/eu/api/v1/namespaces/shop/configmaps?continue="+theirs)
			if names, _ := placed(t, page); !slices.Equal(names, []string{"/b"}) {
				t.Errorf("a page of kube-apiserver is followed by %v", names)
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

// missedOrigin answers the watches with which a replica reads missed changes: a config map x was
// created at version 8 and deleted at version 9. Versions before 4 are too old. It counts the watches.
func missedOrigin(watches *atomic.Int64) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		if query.Get("watch") == "" || query.Get("timeoutSeconds") != "3" {
			return false
		}
		watches.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		from, _ := strconv.Atoi(query.Get("resourceVersion"))
		send := func(kind, object string) {
			_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, object)
			_ = http.NewResponseController(w).Flush()
		}
		if from < 4 {
			send("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
			return true
		}
		if from < 8 {
			send("ADDED", configMap("x", 8))
		}
		if from < 9 {
			send("DELETED", configMap("x", 9))
		}
		time.Sleep(time.Second)
		send("BOOKMARK", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"11"}}`)
		time.Sleep(2 * time.Second)
		return true
	}
}

// TestFailover_missedChanges resumes watches at versions from before the first list of a replica. The
// changes in between come from the API server, once for all clients. A version that the API server
// does not have either is 410, and so are all of them when the replica has run for ten minutes.
func TestFailover_missedChanges(t *testing.T) {
	inMemory(t, []string{"eu"}, nil, func(t *testing.T, w *pipedReplica) {
		var watches atomic.Int64
		w.origins["eu"].answers(missedOrigin(&watches))
		time.Sleep(10 * time.Second) // the copy is at version 10
		both, last := []string{"ADDED /x", "DELETED /x"}, []string{"DELETED /x"}
		expired := []string{"ERROR 410"}
		for _, test := range []struct {
			query   string
			want    []string
			watches int64
		}{
			{"resourceVersion=8", last, 1},
			{"resourceVersion=9", nil, 0},  // the changes are known now
			{"resourceVersion=6", both, 1}, // those before are not
			{"resourceVersion=7", both, 0},
			{"resourceVersion=10", nil, 0},
			{"resourceVersion=3", expired, 1},
			{"resourceVersion=2", expired, 0},
			{"resourceVersion=7&labelSelector=app%3Dx", both, 1},
		} {
			watches.Store(0)
			var reading sync.WaitGroup
			for range 10 {
				reading.Go(func() {
					_, _, body := w.as("", "/clusters/eu"+configMaps+
						"?watch=1&allowWatchBookmarks=1&timeoutSeconds=5&"+test.query)
					if got, _ := watched(t, body); !slices.Equal(got, test.want) {
						t.Errorf("%s: %q, want %q", test.query, got, test.want)
					}
				})
			}
			if reading.Wait(); watches.Load() != test.watches {
				t.Errorf("%s: %d watches at the API server, want %d", test.query, watches.Load(), test.watches)
			}
		}
		// Later a caller cannot make the replica send requests any more.
		time.Sleep(10 * time.Minute)
		watches.Store(0)
		_, _, body := w.as("", "/clusters/eu"+configMaps+"?watch=1&timeoutSeconds=5&resourceVersion=7")
		if got, _ := watched(t, body); !slices.Equal(got, expired) || watches.Load() != 0 {
			t.Errorf("ten minutes later: %q, %d watches at the API server", got, watches.Load())
		}
	})
}

// TestFailover_missedThenNew checks that a watch which has received missed changes goes on with the
// log, and gets a bookmark only after both.
func TestFailover_missedThenNew(t *testing.T) {
	inMemory(t, []string{"eu"}, nil, func(t *testing.T, w *pipedReplica) {
		var watches atomic.Int64
		w.origins["eu"].answers(missedOrigin(&watches))
		time.Sleep(10 * time.Second)
		late := time.AfterFunc(500*time.Millisecond, func() { w.origins["eu"].add("c", 12) })
		defer late.Stop()
		_, _, body := w.as("", "/clusters/eu"+configMaps+
			"?watch=1&allowWatchBookmarks=1&timeoutSeconds=10&resourceVersion=7")
		got, version := watched(t, body)
		if want := []string{"ADDED /x", "DELETED /x", "ADDED /c"}; !slices.Equal(got, want) || version != "12" {
			t.Errorf("the watch has %q and a bookmark at %s, want %q", got, version, want)
		}
	})
}

// TestFailover_firstBookmark checks that a watch that continues at a version receives a bookmark soon:
// otherwise a client that goes from replica to replica keeps an old version.
func TestFailover_firstBookmark(t *testing.T) {
	inMemory(t, []string{"eu"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		conn := w.open("/clusters/eu" + configMaps + "?watch=1&allowWatchBookmarks=1&resourceVersion=10")
		_ = conn.SetReadDeadline(time.Now().Add(6 * time.Second))
		raw, _ := io.ReadAll(conn)
		if !strings.Contains(string(raw), "BOOKMARK") {
			t.Errorf("after six seconds the watch has %q", raw)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
)

// gate is a hook that tests change. The caller is in the header Caller.
type gate struct {
	mu sync.Mutex
	// seen has the names of the members that each caller sees. "*" means a nil CanSee.
	seen map[string][]string
	ends map[string]ending
	// unavailable is how many members are left out because of their reviews.
	unavailable int
}

// ending is the end of a right.
type ending struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newGate() *gate { return &gate{seen: map[string][]string{}, ends: map[string]ending{}} }

func (g *gate) allow(caller string, names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen[caller] = names
}

// end ends the right of a caller.
func (g *gate) end(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.ends[caller]; ok {
		e.cancel()
		delete(g.ends, caller)
	}
	delete(g.seen, caller)
}

func (g *gate) authorize(r *http.Request, _ *Request) (*Access, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	caller := r.Header.Get("Caller")
	names, ok := g.seen[caller]
	if !ok {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no rights"))
	}
	if _, ok := g.ends[caller]; !ok {
		ctx, cancel := context.WithCancel(context.Background())
		g.ends[caller] = ending{ctx, cancel}
	}
	a := &Access{Caller: caller, Expires: g.ends[caller].ctx, Unavailable: g.unavailable}
	if !slices.Contains(names, "*") {
		a.CanSee = func(m *fleet.Member) bool { return slices.Contains(names, m.Name()) }
	}
	return a, nil
}

// as sends a request of a caller.
func (w *pipedReplica) as(caller, path string) (int, http.Header, string) {
	w.t.Helper()
	return w.get(path, "Caller", caller)
}

// configMaps is the path of all config maps, and watchMaps of a watch of them.
const (
	configMaps = "/api/v1/configmaps"
	watchMaps  = configMaps + "?watch=1&allowWatchBookmarks=1&watershedFleet=keyed-by-cluster&timeoutSeconds=30"
)

// watched returns the types and objects of the events of a watch, with the version of its
// last bookmark.
func watched(t *testing.T, body string) (events []string, version string) {
	t.Helper()
	for line := range strings.Lines(body) {
		var e struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch e.Type {
		case "BOOKMARK":
			version = e.Object.ResourceVersion
		case "ERROR":
			var s metav1.Status
			_ = json.Unmarshal([]byte(line[strings.Index(line, `"object":`)+9:len(line)-2]), &s)
			events = append(events, fmt.Sprintf("ERROR %d", s.Code))
		default:
			events = append(events, e.Type+" "+e.Object.Annotations["watershed.dev/cluster"]+"/"+e.Object.Name)
		}
	}
	return events, version
}

// A continue token of the fleet is valid only for the caller that received it, and for the same list.
func TestGrant_tokensAreOfTheirCaller(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		g.allow("alice", "eu", "us")
		g.allow("bob", "eu", "us")
		g.allow("carol", "*")
		time.Sleep(10 * time.Second)
		first := func(caller, path string) string {
			t.Helper()
			code, _, body := w.as(caller, path+"?limit=1")
			_, next := placed(t, body)
			if code != http.StatusOK || next == "" {
				t.Fatalf("%s: %d %s", path, code, body)
			}
			return next
		}
		paths := []string{
			"/clusters/eu" + configMaps, "/clusters/eu/api/v1/namespaces/shop/configmaps", "/fleet" + configMaps,
			"/fleet/api/v1/namespaces/shop/configmaps",
		}
		for _, of := range paths {
			if strings.HasPrefix(of, "/clusters") {
				continue // see TestFailover_clusterTokens
			}
			for _, caller := range []string{"alice", "carol"} {
				next := first(caller, of)
				for _, by := range []string{"alice", "bob", "carol"} {
					for _, path := range paths {
						code, _, body := w.as(by, path+"?limit=1&continue="+next)
						switch own := by == caller && path == of; {
						case own && code != http.StatusOK:
							t.Errorf("%s for its caller: %d %s", path, code, body)
						case !own && code != http.StatusGone && code != http.StatusBadRequest:
							t.Errorf("a token of %s for %s, used by %s for %s: %d %s", caller, of, by, path, code, body)
						case code == http.StatusGone && statusIn(t, body).Continue != "":
							t.Errorf("a token of %s for %s, used by %s for %s, is replaced: %s", caller, of, by, path,
								body)
						}
					}
				}
			}
		}
		next := first("alice", "/fleet"+configMaps)
		for name, forged := range forgeries(t, next) {
			code, _, body := w.as("alice", "/fleet"+configMaps+"?limit=1&continue="+forged)
			if code != http.StatusGone {
				t.Errorf("%s: %d %s", name, code, body)
			}
		}
	})
}

// forgeries returns tokens that differ from one that was issued.
func forgeries(t *testing.T, token string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, field := range []string{"rv", "start", "left", "seal", "unsealed"} {
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil {
			t.Fatal(err)
		}
		switch field {
		case "rv":
			fields["rv"] = 9
		case "left":
			fields["left"] = 1000
		case "start":
			fields["start"] = "shop/aa\x00"
		case "seal":
			fields["seal"] = strings.Repeat("A", 22)
		case "unsealed":
			delete(fields, "seal")
		}
		if raw, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		all[field] = base64.RawURLEncoding.EncodeToString(raw)
	}
	return all
}

// When the members change that a caller sees, its tokens and versions expire: it would
// miss the objects of members that it did not see, or keep those that it does not see now.
func TestGrant_versionsAreOfTheVisibleSet(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us", "za"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		sets := [][]string{{"eu", "us"}, {"eu"}, {"*"}, {"eu", "us", "za"}, {"za"}, {"*"}, {"eu", "us"}}
		version, token := "", ""
		for i, set := range sets {
			g.allow("alice", set...)
			time.Sleep(time.Second)
			if version != "" {
				_, _, body := w.as("alice", "/fleet"+watchMaps+"&resourceVersion="+version)
				if got, _ := watched(t, body); !slices.Equal(got, []string{"ERROR 410"}) {
					t.Errorf("%d: a watch from a version of another set: %q", i, got)
				}
				for _, path := range []string{
					"?limit=2&continue=" + token, "?resourceVersionMatch=Exact&resourceVersion=" + version,
				} {
					if code, _, body := w.as("alice", "/fleet"+configMaps+path); code != http.StatusGone ||
						statusIn(t, body).Reason != metav1.StatusReasonExpired || statusIn(t, body).Continue != "" {
						t.Errorf("%d: %s of another set: %d %s", i, path, code, body)
					}
				}
			}
			w.as("alice", "/fleet"+configMaps) // the set begins, and then its version is that of a change
			w.origins["eu"].add(fmt.Sprint("eu-", i), 20+i)
			w.origins["za"].add(fmt.Sprint("za-", i), 20+i)
			synctest.Wait()
			_, _, body := w.as("alice", "/fleet"+configMaps+"?limit=1")
			_, token = placed(t, body)
			version = versionIn(t, body)
			if code, _, body := w.as("alice", "/fleet"+configMaps+"?limit=1&continue="+token); code != http.StatusOK {
				t.Errorf("%d: a page of the set: %d %s", i, code, body)
			}
			if code, _, body := w.as("alice",
				"/fleet"+configMaps+"?resourceVersionMatch=Exact&resourceVersion="+version); code != http.StatusOK {
				t.Errorf("%d: the version of the set: %d %s", i, code, body)
			}
			code, _, body := w.as("alice", "/fleet"+configMaps+"?resourceVersion="+version+"&labelSelector=app%3Da")
			if code != http.StatusOK {
				t.Errorf("%d: not older than the version of the set: %d %s", i, code, body)
			}
		}
	})
}

// A watch from the version of the first list of a caller receives everything since, also if
// members that the caller does not see change meanwhile.
func TestGrant_watchContinuesAList(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us", "za"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		g.allow("bob", "eu", "us")
		_, _, body := w.as("bob", "/fleet"+configMaps)
		foreign := versionIn(t, body)
		for caller, set := range map[string][]string{"alice": {"eu", "us"}, "admin": {"*"}} {
			g.allow(caller, set...)
			_, _, body := w.as(caller, "/fleet"+watchMaps+"&resourceVersion="+foreign)
			if got, _ := watched(t, body); !slices.Equal(got, []string{"ERROR 410"}) {
				t.Errorf("%s: from a version of another caller: %q", caller, got)
			}
			_, _, body = w.as(caller, "/fleet"+configMaps)
			version := versionIn(t, body)
			n := time.Now().Nanosecond()/1e6 + time.Now().Second()*1000
			for i := range 3 { // an idle watch, and twice one after changes
				name := fmt.Sprintf("%s-%d", caller, i)
				if i > 0 {
					w.origins["us"].add(name, 1000+n+i)
				}
				w.origins["za"].add("hidden-"+name, 1000+n+i)
				synctest.Wait()
				_, _, body := w.as(caller, "/fleet"+watchMaps+"&resourceVersion="+version)
				got, next := watched(t, body)
				slices.Sort(got)
				var want []string
				if i > 0 {
					want = append(want, "ADDED us/"+name)
				}
				if caller == "admin" {
					want = append(want, "ADDED za/hidden-"+name)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: watch %d has %q, want %q", caller, i, got, want)
				}
				version = next
			}
		}
	})
}

// A version of another replica expires, and the next one that the caller receives is
// greater.
func TestGrant_versionsExceedForeignOnes(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		g.allow("alice", "eu")
		for i, path := range []string{
			"?resourceVersion=%s", "?resourceVersionMatch=Exact&resourceVersion=%s",
			"?watch=1&watershedFleet=keyed-by-cluster&timeoutSeconds=1&resourceVersion=%s",
		} {
			w.as("alice", "/fleet"+configMaps)
			ahead := fmt.Sprint((uint64(time.Now().Add(time.Duration(i+1)*10*time.Second).UnixMicro()) << 10) |
				(w.slot()+1)%1024)
			code, _, body := w.as("alice", "/fleet"+configMaps+fmt.Sprintf(path, ahead))
			if code != http.StatusGone && !strings.Contains(body, `"code":410`) {
				t.Errorf("%s: %d %s", path, code, body)
			}
			_, _, body = w.as("alice", "/fleet"+configMaps)
			if next := versionIn(t, body); len(next) != len(ahead) || next <= ahead {
				t.Errorf("%s: the next version is %s, the client has %s", path, next, ahead)
			}
		}
	})
}

// slot returns the last bits of the fleet's versions.
func (w *pipedReplica) slot() uint64 {
	_, _, body := w.as("alice", "/fleet"+configMaps)
	var version uint64
	_, _ = fmt.Sscan(versionIn(w.t, body), &version)
	return version % 1024
}

// Members that are left out are counted, by the reason.
func TestGrant_countsMembersLeftOut(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"a", "b", "c", "d"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, test := range []struct {
			sees        []string
			unavailable int
			want        string
		}{
			{[]string{"*"}, 0, ""},
			{[]string{"a", "b", "c", "d"}, 0, ""},
			{[]string{"a", "b", "c"}, 0, "1 cluster is left out: you may not read this resource there"},
			{[]string{"a", "b"}, 0, "2 clusters are left out: you may not read this resource there"},
			{
				[]string{"a", "b"}, 1, "1 cluster is left out: you may not read this resource there|1 cluster is " +
					"left out: its access review failed or took too long",
			},
			{[]string{"a", "b"}, 2, "2 clusters are left out: their access reviews failed or took too long"},
			{[]string{"a", "b", "c"}, 7, "1 cluster is left out: its access review failed or took too long"},
			{
				[]string{"a"}, 1, "2 clusters are left out: you may not read this resource there|1 cluster is left " +
					"out: its access review failed or took too long",
			},
		} {
			g.allow("alice", test.sees...)
			g.unavailable = test.unavailable
			check := func(path, want string) {
				t.Helper()
				_, h, _ := w.as("alice", path)
				var got []string
				for _, text := range h["Warning"] {
					got = append(got, strings.TrimSuffix(strings.TrimPrefix(text, `299 - "`), `"`))
				}
				if strings.Join(got, "|") != want {
					t.Errorf("%q with %d unavailable, %s: %q, want %q", test.sees, test.unavailable, path, got, want)
				}
			}
			for _, selector := range []string{
				"", "watershed.dev/cluster=a", "watershed.dev/cluster in (a,d)", "app=a",
			} {
				check("/fleet"+configMaps+"?labelSelector="+url.QueryEscape(selector), test.want)
			}
			pages := strings.NewReplacer("1 cluster is left out: you may not read this resource there",
				"1 cluster is left out: you may not read it", "this resource there", "them").Replace(test.want)
			check("/clusters", pages)
			check("/readyz?verbose", pages)
		}
		g.allow("alice") // nothing
		if code, _, body := w.as("alice", "/fleet"+configMaps); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "there are no clusters") {
			t.Errorf("a caller that sees nothing: %d %s", code, body)
		}
		if _, _, body := w.as("alice", "/clusters"); body != `{"clusters":[]}`+"\n" {
			t.Errorf("a caller that sees nothing: %s", body)
		}
	})
}

// A watch ends without an ERROR when its caller loses the right, at once and however it is
// served. Other watches continue.
func TestGrant_endsWatches(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		paths := []string{"/fleet" + watchMaps, "/clusters/eu" + watchMaps,
			"/clusters/eu" + watchMaps + "&watershedRead=consistent",
			"/clusters/eu/api/v1/watch/configmaps?timeoutSeconds=30",
			"/clusters/eu" + watchMaps + "&resourceVersion=99999",
			"/fleet" + watchMaps + "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"}
		for _, path := range paths {
			for _, set := range [][]string{{"eu"}, {"*"}} {
				g.allow("alice", set...)
				g.allow("bob", set...)
				began := time.Now()
				took := map[string]time.Duration{}
				var mu sync.Mutex
				var reading sync.WaitGroup
				for _, caller := range []string{"alice", "alice", "bob"} {
					reading.Go(func() {
						code, _, body := w.as(caller, path)
						if code != http.StatusOK || strings.Contains(body, "ERROR") {
							t.Errorf("%s: %d %s", path, code, body)
						}
						mu.Lock()
						defer mu.Unlock()
						took[caller] = time.Since(began)
					})
				}
				time.Sleep(7 * time.Second)
				g.end("alice")
				time.Sleep(40 * time.Second)
				g.end("bob") // the cluster does not end the watch that is passed on
				reading.Wait()
				if took["alice"] != 7*time.Second || took["bob"] < 30*time.Second {
					t.Errorf("%s ends after %v", path, took)
				}
			}
		}
	})
}

// A watch whose client does not read ends as well, and a list in progress is completed.
func TestGrant_endsSlowWatches(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		g.allow("", "eu")
		list := w.open("/clusters/eu" + configMaps)
		conn := w.open("/clusters/eu" + configMaps + "?watch=1&resourceVersion=10")
		defer conn.Close()
		synctest.Wait()
		for i := range 50 { // the client reads none of them
			w.origins["eu"].add(fmt.Sprint("n", i), 11+i)
		}
		synctest.Wait()
		g.end("")
		w.origins["eu"].add("late", 100)
		synctest.Wait()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || strings.Contains(string(body), "late") || strings.Contains(string(body), "ERROR") {
			t.Errorf("a watch that is not read: %v: %.300s", err, body)
		}
		if body, err := readAnswer(list, "list"); err != nil || !strings.HasSuffix(body, "]}\n") {
			t.Errorf("a list in progress: %v %s", err, body)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// scripted returns a history that the test controls: one cluster with pods a to e, some
// replicas, and a client of the first.
func scripted(t *testing.T, sites int) (h *chronicle, j *journal, c *diffClient) {
	t.Helper()
	j = newJournal(false, false)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		j.write(entry{namespace: "n", name: name})
	}
	h = &chronicle{t: t, rng: rand.New(rand.NewPCG(1, 2)), tally: &tally{}, journals: []*journal{j}, over: true}
	for range sites {
		h.sites = append(h.sites, h.serve())
		if err := h.sites[len(h.sites)-1].fleet.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.settle()
	c = &diffClient{h: h, site: h.sites[0], selector: &diffSelectors[0], era: -1} // no era seen yet
	t.Cleanup(c.stop)
	return h, j, c
}

// get returns the code and the body of a response.
func (s *site) get(t *testing.T, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// page reads the first two objects, and returns the version and the token.
func (c *diffClient) page() (version uint64, from string) {
	w := httptest.NewRecorder()
	c.site.server.ServeHTTP(w, c.request(c.h.t.Context(), "limit=2"))
	list := c.decodeList(w.Body.Bytes())
	version, _ = strconv.ParseUint(list.ResourceVersion, 10, 64)
	return version, url.QueryEscape(list.Continue)
}

// slot returns the slot in the versions of a replica.
func (c *diffClient) slot(s *site) uint64 {
	c.site = s
	version, _ := c.page()
	return version & 1023
}

// TestWatch_aheadOfTheCopyLosesNothing: a client brings a version from the API server
// that the copy has not reached, and the copy lists again. The list skips the client's
// version, or ends before it, or at it.
func TestWatch_aheadOfTheCopyLosesNothing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		later   int // writes after the client's version and before the list
		expired int
	}{{"passed over", 2, 1}, {"reached", 0, 0}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, j, c := scripted(t, 1)
				j.cut(true)
				j.write(entry{namespace: "n", name: "a", app: "x"})
				j.write(entry{namespace: "n", name: "b", deleted: true})
				j.write(entry{namespace: "n", name: "f"}) // created and deleted again, if the list skips it
				c.goDirect()
				c.resume()
				if len(c.state) != 5 || c.watch == nil {
					t.Fatalf("%v knows %v", c, c.state)
				}
				for i := range tt.later {
					j.write(entry{namespace: "n", name: []string{"f", "c"}[i], deleted: true})
				}
				j.forget()
				time.Sleep(2 * time.Minute) // nothing is guaranteed meanwhile
				if c.read(); c.watch == nil {
					t.Fatal("the watch has ended while the server cannot be reached")
				}
				j.cut(false)
				time.Sleep(time.Minute)
				h.settle()
				c.read()
				if n := h.tally.expired["a gap"]; n != tt.expired {
					t.Errorf("the version expired %d times, want %d: %v", n, tt.expired, h.tally)
				}
				c.finish()
			})
		})
	}
}

// TestWatch_partOfAListGoesOnAnywhere: a client stops between the differences that a list
// found. It can continue with the version of the last event that it received, at the API
// server too.
func TestWatch_partOfAListGoesOnAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, j, c := scripted(t, 1)
		c.list()
		c.resume()
		j.cut(true)
		j.write(entry{namespace: "n", name: "f"})
		j.write(entry{namespace: "n", name: "a", deleted: true})
		j.forget()
		j.cut(false)
		time.Sleep(time.Minute)
		h.settle()
		frames, _, _ := c.watch.take(false)
		if len(frames) < 2 {
			t.Fatalf("%d events", len(frames))
		}
		seen := sets.New[string]()
		before := c.version
		for _, frame := range frames[:2] {
			typ, p, _ := c.decode(frame)
			seen.Insert(fmt.Sprintf("%s %s@%s", typ, p.Name, p.ResourceVersion))
		}
		// It is not known when a was deleted. A client that has received only the
		// deletion keeps the version that it had before.
		if want := sets.New(fmt.Sprintf("DELETED a@%d", before),
			fmt.Sprintf("ADDED f@%d", before+1)); !seen.Equal(want) {
			t.Errorf("the list has %v, want %v", sets.List(seen), sets.List(want))
		}
	})
}

// TestVersions_fromBeforeARestoreExpire: a server is restored from a backup, and clients
// use versions from before: while the server is behind them, and when it has passed them.
func TestVersions_fromBeforeARestoreExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, j, c := scripted(t, 1)
		for range 4 {
			j.write(entry{namespace: "n", name: "b"})
		}
		h.settle()
		c.list()
		old, token := c.page()
		path := "/clusters/c0/api/v1/pods?"
		j.restore(old - 4)
		time.Sleep(5 * time.Second)
		if h.settle(); h.sites[0].feed(0).State.Era() == 0 {
			t.Fatal("the restore is not noticed")
		}
		for _, writes := range []int{1, 8} {
			for range writes {
				j.write(entry{namespace: "n", name: "c"})
			}
			h.settle()
			now := h.sites[0].feed(0).Version
			if behind := now < old; behind != (writes == 1) {
				t.Fatalf("the copy is at %d, was at %d", now, old)
			}
			for _, query := range []string{
				fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", old),
				fmt.Sprintf("resourceVersion=%d&limit=1", old),
				"limit=2&continue=" + token,
			} {
				if code, body := h.sites[0].get(t, path+query); code != http.StatusGone {
					t.Errorf("at %d, %s: %d %s", now, query, code, body)
				}
			}
			for v := old - 3; v <= old; v++ {
				code, body := h.sites[0].get(t, fmt.Sprintf("%swatch=1&timeoutSeconds=1&resourceVersion=%d", path, v))
				if code != http.StatusOK || !strings.Contains(body, "Expired") {
					t.Errorf("at %d, watch from %d: %d %s", now, v, code, body)
				}
			}
			// Versions that are sent now can be resumed, or the client would never make
			// progress.
			if now > old {
				for _, v := range []uint64{now, old + 1} {
					if _, body := h.sites[0].get(t,
						fmt.Sprintf("%swatch=1&timeoutSeconds=1&resourceVersion=%d", path, v)); strings.Contains(body,
						"Expired") {
						t.Errorf("at %d, watch from %d: %s", now, v, body)
					}
				}
			}
			// A read with a minimum version is a list, which is complete.
			code, _ := h.sites[0].get(t, fmt.Sprintf("%sresourceVersion=%d", path, old))
			if want := map[bool]int{true: http.StatusOK, false: http.StatusGatewayTimeout}[now >= old]; code != want {
				t.Errorf("at %d, not older than %d: %d", now, old, code)
			}
		}
		// After the history's retention, a version that was sent since the restore is
		// valid.
		time.Sleep(6 * time.Minute)
		h.settle()
		now := h.sites[0].feed(0).Version
		if _, body := h.sites[0].get(t,
			fmt.Sprintf("%swatch=1&timeoutSeconds=1&resourceVersion=%d", path, now)); strings.Contains(body,
			"Expired") {
			t.Errorf("later, watch from %d: %s", now, body)
		}
	})
}

// TestVersions_ofAnotherReplicaExpire: a client of /fleet switches from one replica to
// another. Every version that it brings expires, and the next one that it receives is
// greater.
func TestVersions_ofAnotherReplicaExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, j, c := scripted(t, 3)
		c.cluster = -1
		time.Sleep(time.Second)
		j.write(entry{namespace: "n", name: "a"})
		h.settle()
		here, there := h.sites[0], h.sites[1]
		if c.slot(here) == c.slot(there) {
			// One of 1,024 pairs has the same slot, and here the same time too.
			there = h.sites[2]
		}
		c.site = here
		time.Sleep(time.Second)
		// Only the first replica has this version, which is ahead of the other's.
		c.list()
		foreign, token := c.page()
		path := "/fleet/api/v1/pods?watershedFleet=keyed-by-cluster&"
		if code, body := here.get(t, path+"limit=2&continue="+token); code != http.StatusOK {
			t.Errorf("an own token: %d %s", code, body)
		}
		ask := func(query string) (bool, uint64) {
			t.Helper()
			code, body := there.get(t, path+query)
			gone := code == http.StatusGone || code == http.StatusOK && strings.Contains(body, "Expired")
			c.site = there
			now, _ := c.page()
			return gone, now
		}
		for _, query := range []string{
			fmt.Sprintf("watch=1&timeoutSeconds=1&resourceVersion=%d", foreign),
			fmt.Sprintf("resourceVersion=%d&resourceVersionMatch=Exact", foreign),
			fmt.Sprintf("resourceVersion=%d", foreign),
			"limit=2&continue=" + token,
		} {
			if gone, now := ask(query); !gone || now <= foreign {
				t.Errorf("%s: expired %t, and then the version is %d", query, gone, now)
			}
		}
		_, before := ask("limit=1")
		far := uint64(time.Now().Add(2*time.Minute).UnixMicro())<<10 | foreign&1023
		if gone, now := ask(fmt.Sprintf("watch=1&timeoutSeconds=1&resourceVersion=%d", far)); !gone || now != before {
			t.Errorf("far ahead: expired %t, and the version is %d, was %d", gone, now, before)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// servePods serves n pods as a JSON list, in pages if the request has a limit, and
// counts requests.
func servePods(n int, requests *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if strings.HasPrefix(r.URL.Path, "/pod/") {
			_, _ = io.WriteString(w, pod(strings.TrimPrefix(r.URL.Path, "/pod/")))
			return
		}
		from, to, token := 0, n, ""
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
			from, _ = strconv.Atoi(r.URL.Query().Get("continue"))
			to = min(n, from+limit)
			if to < n {
				token = fmt.Sprintf(`"continue":"%d",`, to)
			}
		}
		var items []string
		for i := from; i < to; i++ {
			items = append(items, pod(strconv.Itoa(i)))
		}
		var out io.Writer = w
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		fmt.Fprintf(out, `{"kind":"PodList","apiVersion":"v1","metadata":{%s"resourceVersion":"5"},"items":[%s]}`,
			token, strings.Join(items, ","))
	}
}

func pod(name string) string {
	return fmt.Sprintf(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%s","namespace":"shop","resourceVersion":"5"},"spec":{"nodeName":%q}}`, name, strings.Repeat("n", 200),
	)
}

func TestQuery_verifiesAndRuns(t *testing.T) {
	for _, q := range []Query{
		{Name: "list", Format: Format{Accept: JSON}, Paths: []string{"/list?x"}, Clients: 1, Items: 10},
		{Name: "gzip", Format: Format{Accept: JSON, Gzip: true}, Paths: []string{"/list?x"}, Clients: 1, Items: 10},
		{
			Name:    "pages",
			Format:  Format{Accept: JSON},
			Paths:   []string{"/list?limit=4"},
			Paged:   true,
			Clients: 1,
			Items:   10,
		},
		{
			Name:    "single",
			Format:  Format{Accept: JSON},
			Paths:   []string{"/pod/1", "/pod/2"},
			Single:  true,
			Clients: 3,
			Items:   2,
		},
	} {
		t.Run(q.Name, func(t *testing.T) {
			var requests atomic.Int64
			s := newServer(t, servePods(10, &requests))
			if _, err := q.Verify(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			requests.Store(0)
			c, err := q.Run(t.Context(), s, 50*time.Millisecond, 0)
			if err != nil {
				t.Fatal(err)
			}
			// The request that opens a client's connection does not count.
			if c.Requests != requests.Load()-int64(q.Clients) || c.Bytes < 100*c.Requests ||
				c.Wall < 50*time.Millisecond {
				t.Errorf("%+v after %d requests", c, requests.Load())
			}
			if q.Paged && c.Requests%3 != 0 {
				t.Errorf("%d requests of three pages", c.Requests)
			}
			q.Items++
			if _, err := q.Verify(t.Context(), s); err == nil {
				t.Error("a missing object is not found")
			}
		})
	}
}

func TestQueryCost(t *testing.T) {
	c := QueryCost{Requests: 1, Bytes: 1e6, CPU: time.Second, Wall: time.Second, Cold: 7}
	c.Add(QueryCost{Requests: 3, Bytes: 1e6, CPU: time.Second, Wall: time.Second, Cold: 9})
	if c.Each() != 500*time.Millisecond || c.PerSecond() != 2 || c.Megabytes() != 0.5 || c.Cold != 7 {
		t.Errorf("%+v", c)
	}
	var none QueryCost
	if none.Each() != 0 || none.Megabytes() != 0 {
		t.Errorf("%v, %v", none.Each(), none.Megabytes())
	}
}

func TestSlowClients_readAtTheirRate(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until memory has settled")
	}
	const size = 1 << 20
	var sent atomic.Int64
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		n := size
		if sent.Add(1) == 1 {
			n = size / 2
		}
		_, _ = w.Write(make([]byte, n))
	})
	c, err := SlowClients{Clients: 3, Rate: 2 << 20}.Run(t.Context(), s, "/", Format{Accept: JSON})
	if err != nil {
		t.Fatal(err)
	}
	if c.Failed != 1 || c.Err == nil || c.Wall < 300*time.Millisecond || c.Settled == 0 || c.Peak == 0 ||
		c.Growth() < 0 {
		t.Errorf("%+v", c)
	}
}

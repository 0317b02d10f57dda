// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/query"
	"github.com/watershed-project/watershed/wire"
)

const (
	componentLabel = "app.kubernetes.io/component"
	nameLabel      = "app.kubernetes.io/name"
)

// indexed are the resources of the differential tests. The index of apps reads a label,
// that of nodes the decoded pod.
var indexed = query.Resources{podResource: {"app": byLabel(nameLabel), "node": nodeOf}}

// located is a decoded pod, its place, and its JSON.
type located struct {
	key  fleet.Key
	pod  *corev1.Pod
	body string
}

// simulate starts API servers that send protobuf, and returns their pods in the order of
// keys.
func simulate(t *testing.T, clusters, pods int) (map[string]*rest.Config, []located) {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Clusters: clusters, Pods: pods, Namespaces: 4})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	configs := map[string]*rest.Config{}
	var all []located
	for i := range clusters {
		c := s.Cluster(i)
		configs[c.Name()] = c.Config()
		for n := range c.Pods() {
			p := c.Pod(n)
			body, err := json.Marshal(p)
			expect.NoError(t, err)
			all = append(all, located{
				fleet.Key{Cluster: c.Name(), Object: p.Namespace + "/" + p.Name}, p, string(body),
			})
		}
	}
	slices.SortFunc(all, func(a, b located) int { return a.key.Compare(b.key) })
	return configs, all
}

// condition is a random query, and what it selects.
type condition struct {
	values   url.Values
	selector labels.Selector
}

// newCondition returns a query whose values are those of one of the pods, mostly.
func newCondition(r *rand.Rand, all []located, clusters bool) condition {
	c := condition{values: url.Values{}, selector: labels.Everything()}
	any := func() located { return all[r.IntN(len(all))] }
	if clusters && r.IntN(3) == 0 {
		c.values.Set("cluster", any().key.Cluster)
	}
	if r.IntN(2) == 0 {
		c.values.Set("namespace", any().pod.Namespace)
	}
	if r.IntN(2) == 0 {
		text := []string{
			"%s=%s", "%s!=%s", "%s in (%s,worker)", "%s notin (%s,worker)", "!%s,team!=%s", "%s,team!=%s",
		}[r.IntN(6)]
		text = fmt.Sprintf(text, componentLabel, any().pod.Labels[componentLabel])
		c.values.Set("labelSelector", text)
		c.selector, _ = labels.Parse(text)
	}
	switch r.IntN(4) {
	case 0:
		c.values.Set("index", "app")
		c.values.Set("value", any().pod.Labels[nameLabel])
	case 1:
		c.values.Set("index", "node")
		c.values.Set("value", any().pod.Spec.NodeName)
	}
	if r.IntN(8) == 0 && c.values.Has("value") {
		c.values.Set("value", "none")
	}
	c.values.Set("limit", strconv.Itoa(1+r.IntN(40)))
	return c
}

// has reports whether a pod is selected.
func (c condition) has(l located) bool {
	is := func(parameter, value string) bool {
		return !c.values.Has(parameter) || c.values.Get(parameter) == value
	}
	indexed := map[string]string{"": "", "app": l.pod.Labels[nameLabel], "node": l.pod.Spec.NodeName}
	return is("cluster", l.key.Cluster) && is("namespace", l.pod.Namespace) &&
		is("value", indexed[c.values.Get("index")]) &&
		c.selector.Matches(labels.Set(l.pod.Labels))
}

// TestHandler_sameAsFiltering sends random queries, reads all their pages, and compares
// the result with that of a filter over the decoded pods.
func TestHandler_sameAsFiltering(t *testing.T) {
	configs, all := simulate(t, 3, 90)
	first := all[0].key.Cluster
	subjects := map[string]struct {
		handler http.Handler
		all     []located
		text    func(fleet.Key) string
	}{
		"factory": {
			ofFactory(t, configs[first], indexed, nil), slices.DeleteFunc(slices.Clone(all), func(l located) bool {
				return l.key.Cluster != first
			}),
			func(k fleet.Key) string { return k.Object },
		},
		"fleet": {ofFleet(t, configs, indexed, nil), all, fleet.Key.String},
	}
	queries := 100
	if testing.Short() {
		queries = 30
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, s := range subjects {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			nonEmpty := 0
			for range queries {
				c := newCondition(r, s.all, name == "fleet")
				var keys, bodies []string
				for _, l := range s.all {
					if c.has(l) {
						keys, bodies = append(keys, s.text(l.key)), append(bodies, l.body)
					}
				}
				gotKeys, gotBodies := pages(t, s.handler, c.values)
				if !slices.Equal(gotKeys, keys) || !slices.Equal(gotBodies, bodies) {
					t.Fatalf("%s: %d objects %v, want %d %v", c.values.Encode(), len(gotKeys), gotKeys, len(keys), keys)
				}
				if len(keys) > 0 {
					nonEmpty++
				}
			}
			if nonEmpty < queries/10 {
				t.Errorf("only %d of %d queries have results", nonEmpty, queries)
			}
		})
	}
}

// pages reads all pages of a query.
func pages(t *testing.T, h http.Handler, values url.Values) (keys, bodies []string) {
	t.Helper()
	limit, err := strconv.Atoi(values.Get("limit"))
	expect.NoError(t, err)
	for {
		r := get(t, h, "/pods?"+values.Encode())
		if len(r.Keys) > limit || r.Continue != "" && len(r.Keys) < limit {
			t.Fatalf("%s: %d keys and continue %q", values.Encode(), len(r.Keys), r.Continue)
		}
		keys = append(keys, r.Keys...)
		for _, item := range r.Items {
			bodies = append(bodies, string(item))
		}
		if r.Continue == "" {
			return keys, bodies
		}
		values.Set("continue", r.Continue)
	}
}

// The last page of an index costs about as much as the first one. It would cost some thirty
// times as much if the objects before it were read.
func TestHandler_latePagesCostNoMore(t *testing.T) {
	pods := 5_000
	if testing.Short() {
		pods = 1_000
	}
	configs, all := simulate(t, 1, pods)
	everything := query.Resources{podResource: {"all": func(*wire.Object) []string { return []string{"x"} }}}
	cfg := configs[all[0].key.Cluster]
	previous := all[len(all)-2].key
	for name, subject := range map[string]struct {
		handler http.Handler
		after   string
	}{
		"factory": {ofFactory(t, cfg, everything, nil), previous.Object},
		"fleet":   {ofFleet(t, configs, everything, nil), previous.String()},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(after string) time.Duration {
				fastest := time.Hour
				for range 50 {
					began := time.Now()
					w := send(subject.handler, http.MethodGet,
						"/pods?index=all&value=x&keys=true&limit=1&continue="+url.QueryEscape(after))
					fastest = min(fastest, time.Since(began))
					expect.Equal(t, w.Code, http.StatusOK)
				}
				return fastest
			}
			if first, last := cost(""), cost(subject.after); last > 8*first {
				t.Errorf("the first page takes %v, the last one %v", first, last)
			} else {
				t.Logf("the first page takes %v, the last one %v", first, last)
			}
		})
	}
}

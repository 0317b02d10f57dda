// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

var (
	replayRounds = flag.Int("past.rounds", 6, "how often TestPast_replay interrupts something")
	replaySeed   = flag.Uint64("past.seed", 0, "the seed of TestPast_replay; default: another each time")
)

// replayed are the resources of TestPast_replay, with the field that its changes write.
var replayed = []struct {
	schema.GroupVersionResource
	kind  string
	field []string
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", []string{"data", "text"}},
	{schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", []string{"data", "text"}},
	{
		schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		"Lease",
		[]string{"spec", "holderIdentity"},
	},
}

// written is a version that the test has written.
type written struct {
	resource int
	version  string
	// seen means that the copy followed the changes then, so that it must know the version.
	seen bool
}

// replay is a cluster with a history, and a replica that stores it.
type replay struct {
	t             *testing.T
	r             *rand.Rand
	cluster       *kubetest.Cluster
	client        dynamic.Interface
	state         *state.Dir
	flags         []string
	stop          func() error
	owner, direct *pastReader
	exist         map[string]bool
	all           []written
}

func (p *replay) path(resource int) string {
	return kube.APIPath(replayed[resource].GroupVersion()) + "/" + replayed[resource].Resource
}

// start starts the replica.
func (p *replay) start() {
	p.t.Helper()
	_, p.stop = startServe(p.t, p.state, p.flags...)
	target, err := apiclient.LocalTarget(*p.state, "")
	expect.NoError(p.t, err)
	p.owner = readAs(p.t, target.URL+"/clusters/a", target.Owner, target.Authority)
}

// write makes a number of random changes.
func (p *replay) write(changes int, seen bool) {
	p.t.Helper()
	for range changes {
		n := p.r.IntN(len(replayed))
		x, name := &replayed[n], fmt.Sprint("item-", p.r.IntN(8))
		objects, key := p.client.Resource(x.GroupVersionResource).Namespace("default"), x.Resource+"/"+name
		o := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": x.GroupVersion().String(), "kind": x.kind, "metadata": map[string]any{"name": name},
			},
		}
		text := strconv.FormatUint(p.r.Uint64(), 36)
		if x.kind == "Secret" {
			text = base64.StdEncoding.EncodeToString([]byte(text))
		}
		expect.NoError(p.t, unstructured.SetNestedField(o.Object, text, x.field...))
		var done *unstructured.Unstructured
		var err error
		switch {
		case !p.exist[key]:
			done, err = objects.Create(p.t.Context(), o, metav1.CreateOptions{})
			p.exist[key] = true
		case p.r.IntN(4) == 0:
			err = objects.Delete(p.t.Context(), name, metav1.DeleteOptions{})
			p.exist[key] = false
		default:
			// Leases need the version that they replace.
			if done, err = objects.Get(p.t.Context(), name, metav1.GetOptions{}); err == nil {
				o.SetResourceVersion(done.GetResourceVersion())
				done, err = objects.Update(p.t.Context(), o, metav1.UpdateOptions{})
			}
		}
		expect.NoError(p.t, err)
		if done != nil {
			p.all = append(p.all, written{n, done.GetResourceVersion(), seen})
		}
		time.Sleep(time.Duration(p.r.IntN(20)) * time.Millisecond) // the moments between changes are read, too
	}
}

// follow waits until the copies of all resources follow the changes of the cluster.
func (p *replay) follow() {
	p.t.Helper()
	for n := range replayed {
		x := &replayed[n]
		o := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": x.GroupVersion().String(),
				"kind":       x.kind,
				"metadata":   map[string]any{"generateName": "mark-"},
			},
		}
		done, err := p.client.Resource(x.GroupVersionResource).Namespace("default").Create(p.t.Context(), o,
			metav1.CreateOptions{})
		expect.NoError(p.t, err)
		expect.Soon(p.t, "the copy follows", func() bool {
			code, _, _ := p.owner.get(kube.APIPath(x.GroupVersion())+"/namespaces/default/"+x.Resource+"/"+
				done.GetName(), nil)
			return code == http.StatusOK
		})
	}
}

// interrupt interrupts something, while objects change.
func (p *replay) interrupt() string {
	p.t.Helper()
	what := p.r.IntN(4)
	if what&1 != 0 {
		expect.NoError(p.t, p.stop())
	}
	p.write(5, false)
	if what&2 != 0 {
		p.cluster.APIServer.Kill()
		expect.NoError(p.t, p.cluster.APIServer.Start(p.t.Context()))
		p.write(5, false)
	}
	if what&1 != 0 {
		p.start()
	}
	p.follow()
	return [...]string{"nothing", "the replica", "the API server", "both"}[what]
}

// answersAt reports whether the server has the states of all resources at a moment.
func (p *replay) answersAt(moment time.Time) bool {
	for n := range replayed {
		at := url.Values{"at": {moment.Format(time.RFC3339Nano)}}
		if code, _, _ := p.owner.get(p.path(n), at); code != http.StatusOK {
			return false
		}
	}
	return true
}

// TestPast_replay makes random changes of several resources while the replica and the API
// server are restarted. Whatever the replica says about the past must be what etcd had. It
// may refuse only moments that it has missed.
func TestPast_replay(t *testing.T) {
	seed := cmp.Or(*replaySeed, uint64(time.Now().UnixNano()))
	t.Logf("seed %d", seed)
	c := kubetest.Start(t, &kubetest.Options{
		Name:  "a",
		Users: []kubetest.User{{Name: "eve", Groups: []string{"system:masters"}}},
	})
	config := c.Config()
	config.QPS = -1
	p := &replay{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), cluster: c, client: dynamic.NewForConfigOrDie(config),
		state: &state.Dir{Path: t.TempDir()}, exist: map[string]bool{},
		direct: readAs(t, config.Host, c.UserConfig("eve").BearerToken, config.CAData),
	}
	key := filepath.Join(t.TempDir(), "key")
	expect.NoError(t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
	p.flags = []string{
		"--kubeconfig", c.Kubeconfig(), "--context", c.Name(), "--resources",
		"configmaps,secrets,leases.coordination.k8s.io", "--home", c.Name(),
		"--data-dir", filepath.Join(t.TempDir(), "data"), "--data-key-file", key, "--history", "1",
	}
	p.start()
	p.follow()
	// The past begins with the first states in the files, which are written after they can be read from
	// memory. Each follow makes changes after a moment, so that the newest state does not answer for it.
	var moments []time.Time
	expect.Soon(t, "the first states are stored", func() bool {
		if len(moments) < 20 {
			moments = append(moments, time.Now())
			p.follow()
		}
		return slices.ContainsFunc(moments, p.answersAt)
	})
	began := time.Now()
	for range *replayRounds {
		p.write(25, true)
		p.follow()
		t.Log("interrupted:", p.interrupt())
	}
	p.write(25, true)
	p.follow()
	ended := time.Now()

	seen := 0
	for range 40 * *replayRounds {
		w := p.all[p.r.IntN(len(p.all))]
		query := url.Values{"resourceVersion": {w.version}, "resourceVersionMatch": {"Exact"}}
		if p.check(w.resource, query) == http.StatusOK {
			seen++
		} else if w.seen {
			t.Errorf("version %s of %s is not known", w.version, replayed[w.resource].Resource)
		}
		at := began.Add(time.Duration(p.r.Int64N(int64(ended.Sub(began)))))
		if p.check(p.r.IntN(len(replayed)), url.Values{"at": {at.Format(time.RFC3339Nano)}}) == http.StatusOK {
			seen++
		}
	}
	t.Logf("%d changes in %v, %d of %d reads were answered", len(p.all), ended.Sub(began), seen, 80**replayRounds)
	if seen < 40**replayRounds {
		t.Error("hardly a test")
	}
	for n := range replayed {
		p.checkChanges(n, began)
	}
}

// check compares a list of the past with etcd, and returns the code of the response.
func (p *replay) check(resource int, query url.Values) int {
	p.t.Helper()
	code, _, body := p.owner.get(p.path(resource), query)
	switch code {
	case http.StatusGone:
		return code
	case http.StatusOK:
	default:
		p.t.Fatalf("%s?%s: %d %s", p.path(resource), query.Encode(), code, body)
	}
	var got pastList
	expect.NoError(p.t, json.Unmarshal(body, &got))
	if want := p.then(resource, got.ResourceVersion); !reflect.DeepEqual(got.Items, want.Items) {
		p.t.Errorf("%s?%s, version %s: %d objects, and etcd had %d, or others", p.path(resource), query.Encode(),
			got.ResourceVersion, len(got.Items), len(want.Items))
	}
	return code
}

// then returns what etcd had at a version.
func (p *replay) then(resource int, version string) pastList {
	p.t.Helper()
	return p.direct.list(p.path(resource), url.Values{"resourceVersion": {version}, "resourceVersionMatch": {"Exact"}})
}

// checkChanges compares the changes of a resource, and their differences, with the states
// that etcd had before and after each.
func (p *replay) checkChanges(resource int, began time.Time) {
	p.t.Helper()
	code, _, body := p.owner.get(p.path(resource), url.Values{"changes": {began.Format(time.RFC3339Nano)}})
	var list document.ChangeList
	if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
		p.t.Fatalf("%d %s", code, body)
	}
	x, compared := &replayed[resource], 0
	text := func(version uint64, name string) string {
		for _, item := range p.then(resource, strconv.FormatUint(version, 10)).Items {
			if o := (&unstructured.Unstructured{Object: item}); o.GetName() == name {
				value, _, _ := unstructured.NestedString(item, x.field...)
				return value
			}
		}
		return ""
	}
	for _, change := range list.Items {
		version, err := strconv.ParseUint(change.ResourceVersion, 10, 64)
		if change.Type != "MODIFIED" || change.Relisted || err != nil {
			continue
		}
		old, now := text(version-1, change.Name), text(version, change.Name)
		differs := false
		for _, d := range change.Differences {
			if d.Path == x.field[0]+"."+x.field[1] {
				differs = true
				if string(d.Old) != strconv.Quote(old) || string(d.New) != strconv.Quote(now) {
					p.t.Errorf("%s %s at %d: from %s to %s, and etcd had %q and %q", x.Resource, change.Name, version,
						d.Old, d.New, old, now)
				}
			}
		}
		if differs != (old != now) && !change.Unknown {
			p.t.Errorf("%s %s at %d: %+v, and etcd had %q and %q", x.Resource, change.Name, version, change.Differences,
				old, now)
		}
		compared++
	}
	if p.t.Logf("%s: %d changes, %d compared", x.Resource, len(list.Items), compared); compared < *replayRounds {
		p.t.Error("hardly a test")
	}
}

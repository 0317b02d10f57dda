// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// lastPods is how many pods the clusters of these tests have.
const lastPods = 20

var podUID = wire.NewPath("metadata.uid")

// outage is a cluster that was stored in files and does not answer any more.
type outage struct {
	clusters *simulated.Server
	at       *front
	network  *kubetest.Proxy
	path     string
	// ended is when the fleet ended that has stored the cluster.
	ended time.Time
}

// newOutage stores a cluster, and then makes it unreachable.
func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{
		clusters: simulate(t, &simulated.Options{Clusters: 2, Pods: lastPods}), at: newFront(t), path: t.TempDir(),
	}
	o.at.lead(t, o.clusters.Cluster(0), "uid-0")
	network, err := kubetest.NewProxy(o.at.Listener.Addr().String())
	expect.NoError(t, err)
	t.Cleanup(network.Close)
	o.network = network
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		r.awaitLive(t)
		storeChange(t, r.member(), o.clusters.Cluster(0))
		if r.member().Unconfirmed() {
			t.Error("a cluster that answers is not confirmed")
		}
	})
	o.ended = time.Now()
	network.Down()
	return o
}

// config returns the configuration of the cluster.
func (o *outage) config() *rest.Config {
	cfg := o.network.Config(o.at.config())
	cfg.TLSClientConfig = rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.at.Certificate().Raw}),
	}
	return cfg
}

// run is a fleet with the files of an outage.
type run struct {
	fleet  *fleet.Fleet
	files  *disk.Directory
	roster *roster
	log    *expect.Output
}

// run runs a fleet of the cluster until the function returns.
func (o *outage) run(t *testing.T, cfg *rest.Config, last bool, during func(*testing.T, *run)) {
	t.Helper()
	ok := t.Run("run", func(t *testing.T) {
		r := &run{files: storing(t, o.path), roster: newRoster(), log: &expect.Output{}}
		r.roster.set("one", cfg)
		r.fleet = start(t, r.roster, &fleet.Options{
			Logger: slog.New(slog.NewTextHandler(r.log, nil)), Disk: r.files, LastState: last, History: 1 << 20,
			Resources: []string{"pods", "namespaces"},
		})
		expect.Soon(t, "the member", func() bool { return r.fleet.Len() == 1 })
		during(t, r)
		if t.Failed() {
			t.Log(r.log)
		}
	})
	if !ok {
		t.FailNow()
	}
}

func (r *run) member() *fleet.Member {
	m, _ := r.fleet.Member("one")
	return m
}

// awaitLive waits until the copy is current.
func (r *run) awaitLive(t *testing.T) {
	t.Helper()
	expect.Eventually(t, time.Minute, func() error {
		if is := r.member().Status(); is.State != fleet.Live {
			return fmt.Errorf("%s\n%s", is, r.log)
		}
		return nil
	})
}

// pods returns how many pods can be read.
func (r *run) pods() int { return fleet.OfResource[*wire.Object](r.fleet, podResource).Len() }

// awaitLast waits until the last state can be read, and returns a cursor that follows it.
func (r *run) awaitLast(t *testing.T) *fanout.Cursor[*wire.Object] {
	t.Helper()
	expect.Soon(t, "the last state", func() bool { return r.pods() == lastPods && r.member().Discovered() })
	feed, ok := r.member().Feed(podResource)
	expect.Equal(t, ok, true)
	now, err := feed.Now()
	expect.NoError(t, err)
	cursor, err := feed.Cursor(now.Revision, fanout.Everything())
	expect.NoError(t, err)
	return cursor
}

// expectContinued checks that the last state can be read, and that the cluster is not listed when
// it answers again.
func (o *outage) expectContinued(t *testing.T, r *run) {
	t.Helper()
	r.awaitLast(t)
	lists := o.clusters.Stats().Lists
	expect.NoError(t, o.network.Up())
	r.awaitLive(t)
	if n := o.clusters.Stats().Lists - lists; n != 0 {
		t.Errorf("%d lists instead of the files", n)
	}
}

// expectNothing checks that the last state cannot be read.
func (r *run) expectNothing(t *testing.T) {
	t.Helper()
	if r.member().Discovered() || r.pods() > 0 {
		t.Errorf("%d pods can be read\n%s", r.pods(), r.log)
	}
	if _, ok := r.member().Feed(podResource); ok {
		t.Error("there is a feed")
	}
}

// TestLastState_isReadUntilTheClusterAnswers reads the last state of a cluster that does not
// answer. When it answers, the copy goes on without a list.
func TestLastState_isReadUntilTheClusterAnswers(t *testing.T) {
	o := newOutage(t)
	lists := o.clusters.Stats().Lists
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		cursor := r.awaitLast(t)
		m := r.member()
		if is := m.Status(); !m.Unconfirmed() || is.State != fleet.Connecting || is.Err == nil ||
			m.Identity().UID != "" {
			t.Errorf("the status is %s, identity %+v", is, m.Identity())
		}
		served := m.Served()
		if len(served) != 2 || !served[0].Namespaced && !served[1].Namespaced || served[0].Kind == "" ||
			len(served[0].Verbs) == 0 {
			t.Errorf("the resources are %+v", served)
		}
		feed, _ := m.Feed(podResource)
		if since := feed.Connection().StaleSince; since.IsZero() || since.After(o.ended) {
			t.Errorf("the state is stale since %s, and was stored before %s", since, o.ended)
		}
		expect.NoError(t, o.network.Up())
		r.awaitLive(t)
		if now := r.member(); now != m || m.Unconfirmed() || m.Identity().UID != "uid-0" {
			t.Errorf("it is another member, or not confirmed: %+v", m.Identity())
		}
		o.clusters.Cluster(0).Touch(5)
		if _, err := cursor.Next(t.Context()); err != nil {
			t.Errorf("a reader of the last state does not go on: %v", err)
		}
		if n := o.clusters.Stats().Lists - lists; n != 0 {
			t.Errorf("%d lists instead of the files", n)
		}
	})
}

// TestLastState_isOptional reads nothing if the option is off.
func TestLastState_isOptional(t *testing.T) {
	o := newOutage(t)
	o.run(t, o.config(), false, func(t *testing.T, r *run) {
		expect.Soon(t, "an error", func() bool {
			return strings.Contains(r.log.String(), "cluster unreachable")
		})
		r.expectNothing(t)
		if r.member().Unconfirmed() {
			t.Error("the member is not confirmed")
		}
	})
}

// TestLastState_ofAnotherConnection changes the configuration between two runs. The files are not
// used if they could be those of another cluster.
func TestLastState_ofAnotherConnection(t *testing.T) {
	o := newOutage(t)
	other, err := kubetest.NewProxy(o.at.Listener.Addr().String())
	expect.NoError(t, err)
	t.Cleanup(other.Close)
	other.Down()
	ca, err := authority.New("another authority")
	expect.NoError(t, err)
	for name, change := range map[string]func(*rest.Config){
		"endpoint":    func(cfg *rest.Config) { cfg.Host = "https://" + other.Addr() },
		"CA":          func(cfg *rest.Config) { cfg.CAData = ca.PEM() },
		"added CA":    func(cfg *rest.Config) { cfg.CAData = append(cfg.CAData, ca.PEM()...) },
		"insecure":    func(cfg *rest.Config) { cfg.TLSClientConfig = rest.TLSClientConfig{Insecure: true} },
		"server name": func(cfg *rest.Config) { cfg.ServerName = "example.com" },
		"proxy": func(cfg *rest.Config) {
			cfg.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: other.Addr()})
		},
		"impersonation": func(cfg *rest.Config) { cfg.Impersonate.UserName = "somebody" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := o.config()
			change(cfg)
			o.run(t, cfg, true, func(t *testing.T, r *run) {
				expect.Soon(t, "a message", func() bool {
					return strings.Contains(r.log.String(), "its stored state is not used")
				})
				r.expectNothing(t)
			})
		})
	}
	t.Run("credentials", func(t *testing.T) {
		cfg := o.config()
		cfg.BearerToken = "renewed"
		o.run(t, cfg, true, func(t *testing.T, r *run) { r.awaitLast(t) })
	})
	t.Run("CA from a file", func(t *testing.T) {
		cfg := o.config()
		cfg.CAFile, cfg.CAData = filepath.Join(t.TempDir(), "ca.pem"), nil
		expect.NoError(t, os.WriteFile(cfg.CAFile, o.config().CAData, 0o600))
		o.run(t, cfg, true, func(t *testing.T, r *run) { r.awaitLast(t) })
		expect.NoError(t, os.WriteFile(cfg.CAFile, ca.PEM(), 0o600))
		o.run(t, cfg, true, func(t *testing.T, r *run) {
			expect.Soon(t, "a message", func() bool {
				return strings.Contains(r.log.String(), "its stored state is not used")
			})
			r.expectNothing(t)
		})
	})
}

// TestLastState_silentNetwork reads the last state before the first discovery has failed: the
// network drops all packets.
func TestLastState_silentNetwork(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	expect.NoError(t, o.network.Up())
	o.network.Stall()
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		r.awaitLast(t)
		if is := r.member().Status(); is.Err != nil {
			t.Errorf("discovery has failed before: %v", is.Err)
		}
		o.network.Resume()
		r.awaitLive(t)
		expect.Equal(t, r.member().Unconfirmed(), false)
	})
}

// TestLastState_changedConfiguration changes the configuration while the last state is read.
func TestLastState_changedConfiguration(t *testing.T) {
	o := newOutage(t)
	ca, err := authority.New("another authority")
	expect.NoError(t, err)
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		cursor, cfg := r.awaitLast(t), o.config()
		cfg.BearerToken = "renewed"
		r.roster.set("one", cfg)
		expect.Soon(t, "the renewed token", func() bool {
			return r.member().Cluster().Config().BearerToken == "renewed"
		})
		expect.Equal(t, r.pods(), lastPods)
		cfg = o.config()
		cfg.CAData, cfg.BearerToken = ca.PEM(), "for another authority"
		r.roster.set("one", cfg)
		if _, err := cursor.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("a reader of the last state ends with %v", err)
		}
		expect.Soon(t, "a message", func() bool {
			return strings.Contains(r.log.String(), "its stored state is not used")
		})
		r.expectNothing(t)
		r.roster.set("one", o.config())
		o.expectContinued(t, r)
	})
	o.network.Down()
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		cursor, cfg := r.awaitLast(t), o.config()
		cfg.Host = "https://127.0.0.1:1"
		r.roster.set("one", cfg)
		if _, err := cursor.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("a reader of the last state ends with %v", err)
		}
		expect.Soon(t, "no objects", func() bool { return r.pods() == 0 })
		r.expectNothing(t)
	})
}

// TestConnectionOf has a digest for each connection, which does not depend on credentials.
func TestConnectionOf(t *testing.T) {
	seen := map[string]int{}
	for i, cfg := range []rest.Config{
		{},
		{TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		{TLSClientConfig: rest.TLSClientConfig{ServerName: "one"}},
		{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("one")}},
		{Impersonate: rest.ImpersonationConfig{UserName: "one"}},
		{Impersonate: rest.ImpersonationConfig{Groups: []string{"one"}}},
		{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "one"})},
	} {
		digest := fleet.ConnectionOf(&cfg)
		if other, ok := seen[digest]; ok || digest == "" {
			t.Errorf("%d: digest %q, which %d has too", i, digest, other)
		}
		seen[digest] = i
		cfg.BearerToken, cfg.Username, cfg.Password = "token", "user", "password"
		cfg.CertData, cfg.KeyData = []byte("certificate"), []byte("key")
		if cfg.Proxy != nil {
			cfg.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "one", User: url.UserPassword("user", "password")})
		}
		expect.Equal(t, fleet.ConnectionOf(&cfg), digest)
	}
	wrapped := rest.Config{}
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper { return next })
	for _, cfg := range []*rest.Config{
		&wrapped,
		{TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "absent")}},
	} {
		expect.Equal(t, fleet.ConnectionOf(cfg), "")
	}
}

// notePath returns the file with what is stored about the cluster.
func (o *outage) notePath(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(o.path, "clusters", "*", "note"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// notedUID returns the UID of the cluster that is stored, "" if nothing is stored about it.
func (o *outage) notedUID(t *testing.T) string {
	t.Helper()
	d, err := disk.Open(o.path, nil)
	expect.NoError(t, err)
	text, err := d.Storage().Note("one")
	expect.NoError(t, errors.Join(err, d.Close()))
	var note struct{ UID string }
	if text != nil {
		expect.NoError(t, json.Unmarshal(text, &note))
	}
	return note.UID
}

// edit changes the file with what is stored about the cluster, as an editor does.
func (o *outage) edit(t *testing.T, old, changed string) {
	t.Helper()
	path := o.notePath(t)
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	edited := bytes.Replace(content, []byte(old), []byte(changed), 1)
	if bytes.Equal(edited, content) {
		t.Fatalf("the note does not have %s", old)
	}
	expect.NoError(t, os.WriteFile(path, edited, 0o600))
}

// rewrite changes what is stored about the cluster, with a correct checksum.
func (o *outage) rewrite(t *testing.T, change func(map[string]any)) {
	t.Helper()
	d, err := disk.Open(o.path, nil)
	expect.NoError(t, err)
	text, err := d.Storage().Note("one")
	expect.NoError(t, err)
	var note map[string]any
	expect.NoError(t, json.Unmarshal(text, &note))
	change(note)
	text, err = json.Marshal(note)
	expect.NoError(t, err)
	expect.NoError(t, d.Storage().WriteNote("one", text))
	expect.NoError(t, d.Close())
}

// TestLastState_damagedNote changes what is stored about the cluster. Nothing is used, and the
// cluster is stored again when it answers.
func TestLastState_damagedNote(t *testing.T) {
	o := newOutage(t)
	other := "https://127.0.0.1:1"
	for name, damage := range map[string]func(*testing.T){
		"endpoint edited":  func(t *testing.T) { o.edit(t, o.config().Host, other) },
		"UID edited":       func(t *testing.T) { o.edit(t, "uid-0", "uid-9") },
		"truncated":        func(t *testing.T) { expect.NoError(t, os.Truncate(o.notePath(t), 100)) },
		"another endpoint": func(t *testing.T) { o.rewrite(t, func(n map[string]any) { n["endpoint"] = other }) },
		"another format":   func(t *testing.T) { o.rewrite(t, func(n map[string]any) { n["format"] = 2 }) },
		"no UID":           func(t *testing.T) { o.rewrite(t, func(n map[string]any) { n["uid"] = "" }) },
		"no resources":     func(t *testing.T) { o.rewrite(t, func(n map[string]any) { n["resources"] = nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			damage(t)
			o.run(t, o.config(), true, func(t *testing.T, r *run) {
				expect.Soon(t, "a message", func() bool {
					return strings.Contains(r.log.String(), "its stored state is not used")
				})
				r.expectNothing(t)
				expect.NoError(t, o.network.Up())
				r.awaitLive(t)
			})
			o.network.Down()
			o.run(t, o.config(), true, func(t *testing.T, r *run) { r.awaitLast(t) })
		})
	}
	// A note that names the address of the configuration does not lead to files of another
	// address or UID: these are parts of the identity of each file.
	for _, key := range []string{"endpoint", "uid"} {
		t.Run("forged "+key, func(t *testing.T) {
			cfg := o.config()
			if key == "endpoint" {
				cfg.Host = other
			}
			o.rewrite(t, func(n map[string]any) {
				n["endpoint"], n["connection"] = cfg.Host, fleet.ConnectionOf(cfg)
				if key == "uid" {
					n["uid"] = "uid-1"
				}
			})
			o.run(t, cfg, true, func(t *testing.T, r *run) {
				expect.Soon(t, "a mirror without a state", func() bool {
					feed, ok := r.member().Feed(podResource)
					return ok && feed.Connection().Failures > 0
				})
				expect.Equal(t, r.pods(), 0)
			})
		})
	}
}

// TestLastState_endsWhenItIsDisproved makes the address answer after an outage, but not as the
// cluster whose state is read. Readers of the state end. It can be read when nothing answers any
// more only if what answered was not an API server, and else not in the next run either.
func TestLastState_endsWhenItIsDisproved(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(t *testing.T, o *outage)
		// pods is how many pods can be read in the end, and noted the UID of the cluster that
		// can be read after the next restart.
		pods  int
		noted string
	}{
		"another cluster": {
			answer: func(t *testing.T, o *outage) { o.at.lead(t, o.clusters.Cluster(1), "uid-1") },
			pods:   lastPods,
			noted:  "uid-1",
		},
		"unknown cluster": {
			answer: func(t *testing.T, o *outage) { o.at.lead(t, o.clusters.Cluster(1), "") }, pods: lastPods,
		},
		"refused credentials": {answer: func(_ *testing.T, o *outage) { o.at.refuse(http.StatusUnauthorized) }},
		"forbidden":           {answer: func(_ *testing.T, o *outage) { o.at.refuse(http.StatusForbidden) }},
		"something else there": {
			answer: func(_ *testing.T, o *outage) { o.at.refuse(http.StatusNotFound) }, noted: "uid-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t)
			o.run(t, o.config(), true, func(t *testing.T, r *run) {
				cursor, first := r.awaitLast(t), r.member()
				pod := o.clusters.Cluster(0).Pod(0)
				key := fleet.Key{Cluster: "one", Object: pod.Namespace + "/" + pod.Name}
				test.answer(t, o)
				expect.NoError(t, o.network.Up())
				if _, err := cursor.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
					t.Errorf("a reader of the last state ends with %v", err)
				}
				// The mirrors of the state have ended, and no later state has its objects.
				if _, ok := first.Feed(podResource); ok && first.Unconfirmed() {
					t.Error("the last state can still be read")
				}
				expect.Soon(t, "the answer", func() bool { return r.pods() == test.pods })
				now, ok := fleet.OfResource[*wire.Object](r.fleet, podResource).Get(key)
				if uid := ""; ok {
					if uid, _ = now.Field(podUID); uid == string(pod.UID) {
						t.Errorf("%s of the last state can be read", key)
					}
				}
				o.network.Down()
				if test.noted == "uid-0" {
					o.at.refuse(0)
					o.expectContinued(t, r)
				} else if test.pods == 0 {
					expect.Soon(t, "another outage", func() bool {
						return fleet.TroubleOf(r.member().Status().Err) == fleet.Unreachable
					})
					r.expectNothing(t)
				}
			})
			expect.Equal(t, o.notedUID(t), test.noted)
		})
	}
}

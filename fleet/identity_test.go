// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// front is an address behind which a test puts one cluster or another.
type front struct {
	*httptest.Server

	mu         sync.Mutex
	uid        string // of kube-system; "" means that reading it is forbidden
	proxy      http.Handler
	identified int
	// failures is how many of the next requests for kube-system fail.
	failures int
	// allowed, if it is not nil, reports which paths of the API may be read.
	allowed func(path string) bool
	// refusal, if it is not 0, is the response to every request.
	refusal int
	// held, if it is not nil, delays requests for kube-system until it is closed.
	held chan struct{}
}

func newFront(t *testing.T) *front {
	f := &front{}
	f.Server = httptest.NewUnstartedServer(f)
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func (f *front) config() *rest.Config {
	return &rest.Config{Host: f.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// lead puts a cluster behind the address, and closes the connections to the one before.
func (f *front) lead(t *testing.T, c *simulated.Cluster, uid string) {
	transport, err := rest.TransportFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.uid = uid
	f.proxy = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	f.mu.Unlock()
	f.CloseClientConnections()
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	proxy, uid, allowed, refusal, held := f.proxy, f.uid, f.allowed, f.refusal, f.held
	kubeSystem := r.URL.Path == "/api/v1/namespaces/kube-system"
	failing := kubeSystem && f.failures > 0
	if kubeSystem {
		f.identified++
	}
	if failing {
		f.failures--
	}
	f.mu.Unlock()
	if kubeSystem && held != nil {
		<-held
	}
	switch {
	case refusal != 0:
		w.WriteHeader(refusal)
	case allowed != nil && !allowed(r.URL.Path):
		w.WriteHeader(http.StatusForbidden)
	case failing:
		w.WriteHeader(http.StatusServiceUnavailable)
	case !kubeSystem:
		proxy.ServeHTTP(w, r)
	case uid == "":
		w.WriteHeader(http.StatusForbidden)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w,
			`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q,"resourceVersion":"1"}}`,
			uid)
	}
}

// refuse answers every request with a code from now on, or none with it if it is 0.
func (f *front) refuse(code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = code
}

func (f *front) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.identified
}

// TestIdentity_anotherClusterAtTheAddress has the address of a cluster lead to another
// one, whose versions look like those of the first: a watch that continued there would
// mix the two.
func TestIdentity_anotherClusterAtTheAddress(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 200})
	at := newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	r := newRoster()
	r.set("one", at.config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods", "namespaces"}, History: 1 << 20, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _ := f.Member("one")
	if i := before.Identity(); i.UID != "uid-0" || i.Endpoint != at.URL || before.Status().Identity != i {
		t.Errorf("the identity is %+v", i)
	}
	feed, _ := before.Feed(podResource)
	moment, err := feed.Now()
	if err != nil {
		t.Fatal(err)
	}
	cursor, err := feed.Cursor(moment.Revision, fanout.Everything())
	if err != nil {
		t.Fatal(err)
	}
	view := fleet.OfResource[*wire.Object](f, podResource)
	w := watchView(t, "pods", view)
	typed, err := fleet.Of[*corev1.Pod](f)
	if err != nil {
		t.Fatal(err)
	}
	// The other cluster is ahead, so that a watch from the version of the first succeeds.
	s.Cluster(1).Touch(7)
	at.lead(t, s.Cluster(1), "uid-1")
	pod := s.Cluster(1).Pod(0)
	key := fleet.Key{Cluster: "one", Object: pod.Namespace + "/" + pod.Name}
	expect.Eventually(t, 20*time.Second, func() error {
		p, ok := typed.Get(key)
		if !ok {
			t.Fatal("the pod was away")
		}
		if p.UID != pod.UID {
			return errors.New("the pod is still that of the cluster before")
		}
		return w.behind(view)
	})
	after, _ := f.Member("one")
	if after == before || after.Identity().UID != "uid-1" {
		t.Errorf("the member is the same, with identity %+v", after.Identity())
	}
	if _, err := cursor.Next(t.Context()); err == nil {
		t.Error("the feed of the cluster before goes on")
	}
	for i := range 200 {
		want := s.Cluster(1).Pod(i)
		if p, _ := typed.Get(fleet.Key{
			Cluster: "one", Object: want.Namespace + "/" + want.Name,
		}); p == nil || p.UID != want.UID {
			t.Fatalf("pod %d is not that of the other cluster", i)
		}
	}
}

// TestIdentity_isConfirmedOncePerConnection counts the requests for the identity.
func TestIdentity_isConfirmedOncePerConnection(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50, Types: 20})
	at := newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	r := newRoster()
	r.set("one", at.config())
	f := start(t, r, &fleet.Options{Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	first := at.asked()
	if first > 8 {
		t.Errorf("the identity was requested %d times to begin %d mirrors", first, m.Status().Resources)
	}
	at.CloseClientConnections()
	s.Cluster(0).Touch(0)
	view := fleet.OfResource[*wire.Object](f, podResource)
	pod := s.Cluster(0).Pod(0)
	expect.Eventually(t, 20*time.Second, func() error {
		if o, ok := view.Get(fleet.Key{
			Cluster: "one", Object: pod.Namespace + "/" + pod.Name,
		}); !ok || fmt.Sprint(o.Version()) != pod.ResourceVersion {
			return errors.New("the change is not there")
		}
		return nil
	})
	if now, _ := f.Member("one"); now != m {
		t.Error("the member was replaced, though the cluster is the same")
	}
	if n := at.asked(); n == first {
		t.Error("the identity was not requested on a new connection")
	}
}

// TestIdentity_withoutUID compares the endpoint and the authority instead.
func TestIdentity_withoutUID(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 50})
	at := newFront(t)
	at.lead(t, s.Cluster(0), "")
	r := newRoster()
	r.set("one", at.config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	if i := m.Status().Identity; i.UID != "" || i.Endpoint != at.URL {
		t.Errorf("the identity is %+v", i)
	}
	a := fleet.Identity{UID: "1", Endpoint: "https://a", Authority: "x"}
	for _, test := range []struct {
		other fleet.Identity
		same  bool
	}{
		{a, true},
		{fleet.Identity{UID: "1", Endpoint: "https://a", Authority: "y"}, true},
		{fleet.Identity{UID: "2", Endpoint: "https://a", Authority: "x"}, false},
		{fleet.Identity{UID: "1", Endpoint: "https://b", Authority: "x"}, false},
		{fleet.Identity{Endpoint: "https://a", Authority: "x"}, true},
		{fleet.Identity{Endpoint: "https://a", Authority: "y"}, false},
	} {
		if a.Same(test.other) != test.same || test.other.Same(a) != test.same {
			t.Errorf("%+v is the same as %+v: %t", test.other, a, !test.same)
		}
	}
}

// TestAlias_oneClusterIsMirroredOnce has several names lead to one cluster.
func TestAlias_oneClusterIsMirroredOnce(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 100})
	r := newRoster()
	cfg := s.Cluster(0).Config()
	other := rest.CopyConfig(cfg)
	other.Username = "another user"
	r.set("eu", cfg)
	r.set("eu-admin", other)
	r.set("us", s.Cluster(1).Config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	view := fleet.OfResource[*wire.Object](f, podResource)
	if n := view.Len(); n != 200 {
		t.Errorf("%d pods of two clusters that have 100 each", n)
	}
	m, ok := f.Member("eu-admin")
	if !ok || m.Name() != "eu" || !slices.Equal(m.Aliases(), []string{"eu-admin"}) || len(f.Members()) != 2 {
		t.Fatalf("eu-admin is %v of %d members", m, len(f.Members()))
	}
	if n := view.In("eu-admin").Len(); n != 100 {
		t.Errorf("%d pods of eu-admin", n)
	}
	// A new name that sorts first does not replace the name of a member.
	r.set("abc", cfg)
	expect.Eventually(t, 5*time.Second, func() error {
		if aliases := m.Aliases(); !slices.Equal(aliases, []string{"abc", "eu-admin"}) {
			return fmt.Errorf("the aliases are %v", aliases)
		}
		return nil
	})
	// When the member's name is removed, another name replaces it.
	r.set("eu", nil)
	expect.Eventually(t, 20*time.Second, func() error {
		m, ok := f.Member("eu-admin")
		if !ok || m.Name() != "abc" {
			return errors.New("the other name does not lead to the cluster")
		}
		if n := view.In("abc").Len(); n != 100 || view.Len() != 200 {
			return fmt.Errorf("%d pods, %d of them in abc", view.Len(), n)
		}
		return nil
	})
	if _, ok := f.Member("eu"); ok {
		t.Error("the name that went leads to a cluster")
	}
}

// TestAlias_usesCredentialsThatAreAccepted has two names, and the cluster refuses the
// credentials of the first.
func TestAlias_usesCredentialsThatAreAccepted(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 100})
	r := newRoster()
	expired := s.Cluster(0).Config()
	expired.BearerToken = "expired"
	r.set("a", expired)
	r.set("b", s.Cluster(0).Config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	expect.Eventually(t, 20*time.Second, func() error {
		if n := fleet.OfResource[*wire.Object](f, podResource).In("b").Len(); n != 100 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
}

// TestIdentity_versionsOfTheClusterBeforeExpire resumes a feed with versions of a cluster
// that was replaced, which look like versions of the new one.
func TestIdentity_versionsOfTheClusterBeforeExpire(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 100})
	at := newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	r := newRoster()
	r.set("one", at.config())
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, History: 1 << 20, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	feed := func() *history.Feed {
		m, _ := f.Member("one")
		feed, ok := m.Feed(podResource)
		if !ok {
			return nil
		}
		return feed
	}
	reach := func(version uint64) *history.Feed {
		t.Helper()
		var is *history.Feed
		expect.Eventually(t, 20*time.Second, func() error {
			if is = feed(); is == nil {
				return errors.New("there is no feed")
			}
			if now, err := is.Now(); err != nil || now.Version != version {
				return fmt.Errorf("the feed is at %v, not at %d: %w", now, version, err)
			}
			return nil
		})
		return is
	}
	var versions []uint64
	for i := range 5 {
		versions = append(versions, s.Cluster(0).Touch(i))
		reach(versions[i])
		if i < 4 {
			s.Cluster(0).Compact() // a version without a change
		}
	}
	first := reach(versions[4])
	for _, v := range versions {
		if _, _, err := first.Since(v); err != nil {
			t.Errorf("version %d of the first cluster: %v", v, err)
		}
	}
	// The other cluster starts at lower versions, and passes these later.
	s.Cluster(1).Compact()
	s.Cluster(1).Compact()
	at.lead(t, s.Cluster(1), "uid-1")
	var second *history.Feed
	expect.Eventually(t, 20*time.Second, func() error {
		if second = feed(); second == nil || second == first {
			return errors.New("there is no other feed")
		}
		if _, err := second.Now(); err != nil {
			return err
		}
		return nil
	})
	own := s.Cluster(1).Version()
	if now, _ := second.Now(); now.Version != own {
		t.Fatalf("the other cluster is at %d, its feed at %d", own, now.Version)
	}
	if _, _, err := second.Since(own); err != nil {
		t.Errorf("version %d of the list of the other cluster: %v", own, err)
	}
	for i := range 10 {
		s.Cluster(1).Touch(i)
	}
	last := s.Cluster(1).Version()
	reach(last)
	for _, v := range versions {
		if _, _, err := second.Since(v); !errors.Is(err, fanout.ErrExpired) {
			t.Errorf("version %d of the first cluster is taken for one of the other: %v", v, err)
		}
	}
	if _, _, err := second.Since(last); err != nil {
		t.Errorf("version %d of the other cluster: %v", last, err)
	}
}

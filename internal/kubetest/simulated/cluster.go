// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Cluster is one simulated cluster. All methods are safe for concurrent use.
type Cluster struct {
	number     int
	seed       uint64
	token      string
	population *population
	catalogue  *catalogue
	bookmarks  time.Duration // see Options.Bookmarks

	authority []byte // PEM
	life      *life  // of the server

	listener net.Listener
	http     *http.Server
	stats    counters

	mu      sync.Mutex // guards all below
	pods    []uint32   // the version of each pod, 0 if there is none
	born    map[uint32]uint32
	newest  uint32
	oldest  uint32 // the oldest version that lists and watches may request
	past    history
	changed chan struct{} // closed with the next change; nil if nothing waits
	conns   map[net.Conn]struct{}
}

// newCluster returns a cluster that does not serve yet.
func newCluster(number int, o Options, p *population, k *catalogue) *Cluster {
	c := &Cluster{
		number:     number,
		population: p,
		catalogue:  k,
		bookmarks:  o.Bookmarks,
		pods:       make([]uint32, len(p.pods)),
		conns:      map[net.Conn]struct{}{},
	}
	r := sequence(o.Seed, uint64(number))
	c.seed = r.next()
	token := make([]byte, 32)
	r.hex(token)
	c.token = string(token)
	// Every object has its own version: first the namespaces, then the pods.
	c.newest = uint32(len(p.namespaces))
	for i := range p.pods {
		c.pods[i] = c.newest + 1 + uint32(p.pods[i].origin)
	}
	c.newest += uint32(len(c.pods))
	c.oldest = c.newest
	c.past = history{limit: o.History, first: c.newest + 1, dropped: c.newest}
	return c
}

// Name returns the cluster's name, which is unique within the server.
func (c *Cluster) Name() string { return fmt.Sprintf("simulated-%05d", c.number) }

// Addr returns the host and port of the cluster.
func (c *Cluster) Addr() string { return c.listener.Addr().String() }

// Config returns access to the cluster, without a rate limit.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:        (&url.URL{Scheme: "https", Host: c.Addr()}).String(),
		BearerToken: c.token,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:     append([]byte(nil), c.authority...),
			ServerName: serverName,
		},
		QPS: -1,
	}
}

// Stats returns the counts up to now.
func (c *Cluster) Stats() Stats { return c.stats.read() }

func (c *Cluster) authorized(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+c.token)) == 1
}

// Pod returns the current state of pod i, in the order of lists, or nil if it was
// deleted. It is decoded from the bytes that the cluster would send.
func (c *Cluster) Pod(i int) *corev1.Pod {
	s, _ := c.snapshot(i, i+1, 0)
	if s.versions[0] == 0 {
		return nil
	}
	raw, err := c.renderer(&c.catalogue.resources[podResource], media{encoding: protobufEncoding}).raw(i, s.state(0))
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	if err == nil {
		err = pod.Unmarshal(raw)
	}
	if err != nil {
		panic(fmt.Sprintf("simulated: pod %d of %s: %v", i, c.Name(), err)) // New has checked that it can be encoded
	}
	return pod
}

// renderer returns a renderer of a resource's objects.
func (c *Cluster) renderer(r *resource, m media) *renderer {
	return &renderer{population: c.population, seed: c.seed, resource: r, encoding: m.encoding, partial: m.partial()}
}

// Pods returns how many pods the cluster began with: their numbers are below it.
func (c *Cluster) Pods() int { return len(c.pods) }

// Version returns the latest resourceVersion.
func (c *Cluster) Version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return firstVersion + uint64(c.newest)
}

// Touch changes the state of pod i: it was not ready for a moment. It returns the
// resourceVersion of the change, or 0 if there is no such pod now.
func (c *Cluster) Touch(i int) (version uint64) { return c.change(modified, i) }

// Delete deletes pod i. It returns the resourceVersion of the change, or 0 if there is no
// such pod now.
func (c *Cluster) Delete(i int) (version uint64) { return c.change(deleted, i) }

// Create creates pod i again after it was deleted, with another uid. It returns the
// resourceVersion of the change, or 0 if the pod exists.
func (c *Cluster) Create(i int) (version uint64) { return c.change(added, i) }

func (c *Cluster) change(kind changeKind, i int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.pods[i]
	if (kind == added) != (before == 0) {
		return 0
	}
	c.newest++
	c.pods[i] = c.newest
	switch kind {
	case added:
		if c.born == nil {
			c.born = map[uint32]uint32{}
		}
		c.born[uint32(i)] = c.newest
	case deleted:
		c.pods[i] = 0
	}
	c.past.add(change{kind: kind, pod: uint32(i), before: before, born: c.born[uint32(i)]})
	c.oldest = max(c.oldest, c.past.dropped)
	c.wake()
	return firstVersion + uint64(c.newest)
}

func (c *Cluster) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Compact drops history: every resourceVersion and every continue token that was returned
// before the call is too old for lists and for new watches. Running watches continue if
// they are not behind. It returns the oldest resourceVersion that is left.
func (c *Cluster) Compact() (version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest++
	c.oldest = c.newest
	c.past.forget(c.newest + 1)
	c.wake()
	return firstVersion + uint64(c.oldest)
}

// Cut breaks all connections to the cluster. New ones are accepted.
func (c *Cluster) Cut() {
	c.mu.Lock()
	var conns []net.Conn
	for conn := range c.conns {
		conns = append(conns, conn)
	}
	c.mu.Unlock()
	for _, conn := range conns {
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn() // without TLS's closing message, which could take time
		}
		_ = conn.Close()
	}
}

// snapshot reads pods at a version, 0 for the latest. It returns false if the version is
// too old. It must not be newer than the newest.
func (c *Cluster) snapshot(lo, hi int, at uint32) (snapshot, bool) {
	versions := make([]uint32, hi-lo)
	c.mu.Lock()
	defer c.mu.Unlock()
	if at == 0 {
		at = c.newest
	}
	s := snapshot{version: at, versions: versions, first: lo}
	if at < c.oldest {
		return s, false
	}
	copy(versions, c.pods[lo:hi])
	if len(c.born) > 0 {
		s.born = make(map[uint32]uint32, len(c.born))
		for pod, born := range c.born {
			s.born[pod] = born
		}
	}
	// Later changes are undone, the latest first.
	for v := c.newest; v > at && v >= c.past.first; v-- {
		ch := c.past.at(v)
		if i := int(ch.pod); i >= lo && i < hi {
			versions[i-lo] = ch.before
			if s.born != nil {
				s.born[ch.pod] = ch.born
			}
		}
	}
	return s, true
}

// read returns the objects of a resource from lo up to hi at a version. See snapshot.
func (c *Cluster) read(r *resource, lo, hi int, at uint32) (snapshot, bool) {
	if r.pods {
		return c.snapshot(lo, hi, at)
	}
	s, ok := c.snapshot(0, 0, at)
	s.first = lo
	for i := lo; i < hi; i++ {
		s.versions = append(s.versions, uint32(i)+1)
	}
	return s, ok
}

// since copies the changes after a version, as many as fit. The first has the version
// from, and the versions of the others follow. If there are none, it returns a channel
// that is closed with the next change. It returns false if changes after the version have
// been dropped.
func (c *Cluster) since(version uint32, into []change) (n int, from uint32, wait <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.past.dropped {
		return 0, 0, nil, false
	}
	from = max(version+1, c.past.first)
	for v := from; v <= c.newest && n < len(into); v++ {
		into[n] = c.past.at(v)
		n++
	}
	if n > 0 {
		return n, from, nil, true
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return 0, from, c.changed, true
}

// freshTimeout is how long a request waits for a version that the cluster has not
// reached.
const freshTimeout = 3 * time.Second

// reach waits, up to freshTimeout, until the cluster has a version. It returns the newest
// version, and whether it has reached the other.
func (c *Cluster) reach(ctx context.Context, version uint64) (newest uint32, ok bool) {
	timeout := time.NewTimer(freshTimeout)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		newest = c.newest
		ok = version <= firstVersion+uint64(newest)
		if !ok && c.changed == nil {
			c.changed = make(chan struct{})
		}
		wait := c.changed
		c.mu.Unlock()
		if ok {
			return newest, true
		}
		select {
		case <-wait:
		case <-timeout.C:
			return newest, false
		case <-ctx.Done():
			return newest, false
		}
	}
}

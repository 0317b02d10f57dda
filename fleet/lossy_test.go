// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// lossy is a transport whose watches are in JSON and lose events at random, while it is
// not mended.
type lossy struct {
	http.RoundTripper
	mended *atomic.Bool
	lost   *atomic.Int64

	mu     *sync.Mutex // guards random
	random *rand.Rand
}

// WrappedRoundTripper implements an interface of client-go, which logs a warning without
// it.
func (l lossy) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

func (l lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" || r.URL.Path != "/api/v1/pods" {
		return l.RoundTripper.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK {
		resp.Body = &lossyBody{ReadCloser: resp.Body, lines: bufio.NewReader(resp.Body), loses: l.loses}
	}
	return resp, err
}

// loses reports whether an event is lost. Bookmarks never are.
func (l lossy) loses(line []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mended.Load() || bytes.Contains(line[:min(40, len(line))], []byte("BOOKMARK")) || l.random.IntN(20) > 0 {
		return false
	}
	l.lost.Add(1)
	return true
}

// lossyBody is the body of a watch that loses lines.
type lossyBody struct {
	io.ReadCloser
	lines *bufio.Reader
	rest  []byte
	loses func([]byte) bool
}

func (b *lossyBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		line, err := b.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if !b.loses(line) {
			b.rest = line
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// differences returns how the copy of a member differs from its cluster.
func differences(c *simulated.Cluster, m *fleet.Member) map[string]verify.Divergence {
	copied, _ := m.Copied(podResource)
	all := map[string]verify.Divergence{}
	for i := range c.Pods() {
		pod := c.Pod(i)
		if pod == nil {
			continue
		}
		key := pod.Namespace + "/" + pod.Name
		var is uint64
		_, _ = fmt.Sscan(pod.ResourceVersion, &is)
		switch o := copied[key]; {
		case o == nil:
			all[key] = verify.Divergence{Kind: verify.DivergenceMissing, Key: key, Server: is}
		case o.Version() < is:
			all[key] = verify.Divergence{Kind: verify.DivergenceStale, Key: key, Server: is, Copy: o.Version()}
		}
		delete(copied, key)
	}
	for key, o := range copied {
		all[key] = verify.Divergence{Kind: verify.DivergenceExtra, Key: key, Copy: o.Version()}
	}
	return all
}

// TestVerify_lostEvents mirrors a cluster over a connection that loses events, and compares
// what a verification finds with the cluster itself. The repair corrects the copy.
func TestVerify_lostEvents(t *testing.T) {
	pods, took, least := 3_000, 2*time.Second, 20
	if testing.Short() {
		pods, took, least = 500, time.Second, 5
	}
	random := verifySeed(t)
	l := lossy{
		mended: &atomic.Bool{},
		lost:   &atomic.Int64{},
		mu:     &sync.Mutex{},
		random: rand.New(rand.NewPCG(random.Uint64(), 4)),
	}
	c, m, _ := verified(t, &simulated.Options{
		Pods: pods, Bookmarks: 50 * time.Millisecond, History: 100_000,
	}, &fleet.Options{History: 1 << 24}, func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			l := l
			l.RoundTripper = next
			return l
		})
	})
	stop := churn(t, random, c, 0)
	time.Sleep(took) // how long the objects change
	stop()
	reached := func() error {
		if _, version := m.Copied(podResource); version < c.Version() {
			return fmt.Errorf("the copy is at %d of %d", version, c.Version())
		}
		return nil
	}
	expect.Eventually(t, 20*time.Second, reached)
	want := differences(c, m)
	v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true})
	got := map[string]verify.Divergence{}
	for _, d := range v.Examples {
		got[d.Key] = d
	}
	t.Logf("%d events were lost: %v", l.lost.Load(), v)
	expect.Equal(t, got, want)
	if len(want) < least || !maps.Equal(v.Counts, verifyCopy(t, m, fleet.VerifyOptions{}).Counts) {
		t.Errorf("%d differences, %v", len(want), v.Counts)
	}
	l.mended.Store(true)
	if v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true, Repair: true}); v.Diverges() || v.Repair == nil {
		t.Errorf("after the repair: %v", v.Repair)
	}
	expect.Eventually(t, 20*time.Second, reached)
	wantSame(t, c, m)
}

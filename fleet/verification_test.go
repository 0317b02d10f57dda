// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// TestVerify_findsEveryDivergence injects 1,000 divergences into the copy of a cluster whose
// other pods change all the time, finds each of them, and repairs them. In short mode there
// are fewer.
func TestVerify_findsEveryDivergence(t *testing.T) {
	each := 250 // of four kinds
	if testing.Short() {
		each = 24
	}
	some := 8 * each // pods for injections
	for name, opts := range map[string]*fleet.Options{
		"packed, with history":  {History: 1 << 24},
		"fast, without history": {Fast: true},
	} {
		t.Run(name, func(t *testing.T) {
			random := verifySeed(t)
			c, m, f := verified(t, &simulated.Options{Pods: 3 * some, History: 100_000}, opts, nil)
			// The first pods are for injections, the others change.
			steady := map[string]bool{}
			for i := range some {
				c.Touch(random.IntN(some))
				pod := c.Pod(i)
				steady[pod.Namespace+"/"+pod.Name] = true
			}
			expect.Eventually(t, 10*time.Second, func() error {
				if _, version := m.Copied(podResource); version < c.Version() {
					return fmt.Errorf("the copy is at %d of %d", version, c.Version())
				}
				return nil
			})
			stop := churn(t, random, c, some)
			reader := watchView(t, "pods", fleet.OfResource[*wire.Object](f, podResource))
			injected := inject(t, random, m, each, false, func(key string) bool { return steady[key] })
			expect.Equal(t, len(injected), 4*each)
			wantFound(t, verifyCopy(t, m, fleet.VerifyOptions{}), injected)
			if s := m.Status(); len(s.Diverged) != 1 || s.Diverged[0].Verified.Divergences() != 4*each-each/2 ||
				s.Diverged[0].Resource.Resource != "pods" {
				t.Errorf("the status is %v", s.Diverged)
			}
			v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true, Repair: true})
			wantFound(t, v, injected)
			if v.Repair == nil || v.Repair.Divergences() != 0 || v.Diverges() {
				t.Errorf("the repair is %v", v.Repair)
			}
			if s := m.Status(); len(s.Diverged) != 0 {
				t.Errorf("after the repair the status is %v", s.Diverged)
			}
			stats, n := m.Stats().Verification, uint64(each)
			expect.Equal(t, [...]uint64{
				stats.Runs, stats.Missing, stats.Extra, stats.Stale, stats.Wrong, stats.Ahead, stats.Repairs,
				stats.Unrepaired, uint64(stats.Diverged),
			},
				[...]uint64{3, 2 * n, 2 * n, 2 * n, n/2 + n, 0, 1, 0, 0})
			stop()
			expect.Eventually(t, 10*time.Second, func() error {
				if _, version := m.Copied(podResource); version < c.Version() {
					return fmt.Errorf("the copy is at %d of %d", version, c.Version())
				}
				return reader.behind(fleet.OfResource[*wire.Object](f, podResource))
			})
			wantSame(t, c, m)
		})
	}
}

// churn changes, deletes and creates random pods, those from a number on, until it is
// stopped.
func churn(t *testing.T, random *rand.Rand, c *simulated.Cluster, from int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	own := rand.New(rand.NewPCG(random.Uint64(), 2))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			i := from + own.IntN(c.Pods()-from)
			switch own.IntN(4) {
			case 0:
				c.Delete(i)
			case 1:
				c.Create(i)
			default:
				c.Touch(i)
			}
			time.Sleep(200 * time.Microsecond) // the pace of the changes
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// TestVerify_healthyUnderChurn verifies a copy again and again while its pods change,
// connections break and history expires, and finds no divergence.
func TestVerify_healthyUnderChurn(t *testing.T) {
	took, pods := 5*time.Second, 2_000
	if testing.Short() {
		took, pods = time.Second, 300
	}
	if text := os.Getenv("WATERSHED_VERIFY"); text != "" {
		took, _ = time.ParseDuration(text)
	}
	for name, opts := range map[string]*fleet.Options{"with history": {History: 1 << 24}, "without history": {}} {
		t.Run(name, func(t *testing.T) {
			random := verifySeed(t)
			c, m, _ := verified(t, &simulated.Options{Pods: pods, Bookmarks: 100 * time.Millisecond}, opts, nil)
			churn(t, random, c, 0)
			runs, versions := 0, map[uint64]bool{}
			// With the race detector on a busy machine the first comparisons take long.
			for began := time.Now(); time.Since(began) < took ||
				(runs < 3 || len(versions) < 3) && time.Since(began) < time.Minute; {
				v, err := m.Verify(t.Context(), podResource, fleet.VerifyOptions{Deep: random.IntN(2) == 0})
				if err != nil { // the connection was cut, or the version is gone
					time.Sleep(10 * time.Millisecond) // the copy reads the cluster again
					continue
				}
				// Only after a comparison, or on a slow machine the copy never catches up.
				switch random.IntN(20) {
				case 0, 1:
					c.Cut()
				case 2, 3:
					c.Compact()
				}
				runs++
				versions[v.Version] = true
				if v.Divergences() > 0 || v.Undecided > 0 {
					t.Fatalf("a healthy copy diverges: %v %v", v, v.Examples)
				}
			}
			t.Logf("%d comparisons of %d versions, %+v", runs, len(versions), m.Stats().Verification)
			if runs < 3 || len(versions) < 3 {
				t.Errorf("only %d comparisons of %d versions", runs, len(versions))
			}
		})
	}
}

// transport changes the requests for lists of an exact version.
type transport struct {
	http.RoundTripper
	change func(*http.Request) *http.Response
}

// WrappedRoundTripper implements an interface of client-go, which logs a warning without
// it.
func (x transport) WrappedRoundTripper() http.RoundTripper { return x.RoundTripper }

func (x transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("resourceVersionMatch") == "Exact" {
		r = r.Clone(r.Context())
		if resp := x.change(r); resp != nil {
			return resp, nil
		}
	}
	return x.RoundTripper.RoundTrip(r)
}

// TestVerify_otherVersion verifies against a server that ignores or refuses the version in
// the request, and returns its newest state.
func TestVerify_otherVersion(t *testing.T) {
	some := 1_000 // pods for injections
	if testing.Short() {
		some = 200
	}
	for name, opts := range map[string]*fleet.Options{
		"with history":    {History: 1 << 24},
		"without history": {},
		"short history":   {History: 1 << 24, Window: 1},
	} {
		for how, change := range map[string]func(*http.Request) *http.Response{
			"ignored": ignoreVersion, "refused": refuseVersion,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				random := verifySeed(t)
				c, m, _ := verified(t, &simulated.Options{
					Pods: some + some/2, Bookmarks: 50 * time.Millisecond, History: 100_000,
				}, opts, func(cfg *rest.Config) {
					cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, change} })
				})
				steady := map[string]bool{}
				for i := range some {
					pod := c.Pod(i)
					steady[pod.Namespace+"/"+pod.Name] = true
				}
				stop := churn(t, random, c, some)
				for range 3 {
					if v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true}); v.Divergences() > 0 {
						t.Fatalf("a healthy copy diverges: %v %v", v, v.Examples)
					}
				}
				injected := inject(t, random, m, 20, false, func(key string) bool { return steady[key] })
				stop()
				expect.Eventually(t, 20*time.Second, func() error {
					v, err := m.Verify(t.Context(), podResource, fleet.VerifyOptions{Deep: true, Examples: 1_000})
					if err == nil && v.Undecided > 0 {
						err = fmt.Errorf("%d objects are undecided", v.Undecided)
					}
					if err != nil {
						return err
					}
					wantFound(t, v, injected)
					return nil
				})
			})
		}
	}
}

func ignoreVersion(r *http.Request) *http.Response {
	q := r.URL.Query()
	q.Del("resourceVersion")
	q.Del("resourceVersionMatch")
	r.URL.RawQuery = q.Encode()
	return nil
}

func refuseVersion(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusBadRequest,
		Status:     "400 Bad Request",
		Header:     http.Header{},
		Body:       http.NoBody,
		Request:    r,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}
}

// TestVerify_restored verifies a copy with states that are newer than those of the server,
// as after a restore of etcd that was not detected, and repairs it.
func TestVerify_restored(t *testing.T) {
	random := verifySeed(t)
	c, m, _ := verified(t, &simulated.Options{Pods: 1_000}, &fleet.Options{History: 1 << 24}, nil)
	for range 500 {
		c.Touch(random.IntN(c.Pods()))
	}
	expect.Eventually(t, 10*time.Second, func() error {
		if _, version := m.Copied(podResource); version < c.Version() {
			return errors.New("the copy is behind")
		}
		return nil
	})
	feed, _ := m.Feed(podResource)
	before, err := feed.Now()
	if err != nil {
		t.Fatal(err)
	}
	injected := inject(t, random, m, 40, true, func(string) bool { return true })
	v := verifyCopy(t, m, fleet.VerifyOptions{Deep: true, Repair: true})
	wantFound(t, v, injected)
	if v.Counts[verify.DivergenceAhead] == 0 || v.Diverges() {
		t.Errorf("the result is %v, the repair %v", v, v.Repair)
	}
	wantSame(t, c, m)
	// A version from before the repair has another meaning after it.
	if now, err := feed.Now(); err != nil || now.State.Era() == before.State.Era() {
		t.Errorf("the era is the same, %v", err)
	}
}

// TestVerify_waitsForItsTurn checks that a verification takes a place of the budget, ends
// at once with its context, and runs alone.
func TestVerify_waitsForItsTurn(t *testing.T) {
	var requests atomic.Int64
	hold := make(chan struct{})
	_, m, _ := verified(t, &simulated.Options{Pods: 100}, &fleet.Options{Budget: fleet.Budget{Lists: 1}},
		func(cfg *rest.Config) {
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport{next, func(r *http.Request) *http.Response {
					requests.Add(1)
					select {
					case <-hold:
					case <-r.Context().Done():
					}
					return nil
				}}
			})
		})
	ended := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := m.Verify(ctx, podResource, fleet.VerifyOptions{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 20*time.Second {
			t.Errorf("%s: %v after %s", what, err, took)
		}
	}
	leave, err := m.TakeTurn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended("during another list")
	expect.Equal(t, requests.Load(), int64(0))
	leave()
	ended("during its request")
	expect.Equal(t, requests.Load(), int64(1))
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := m.Verify(t.Context(), podResource, fleet.VerifyOptions{}); err != nil {
			t.Error(err)
		}
	})
	expect.Soon(t, "the first one runs", func() bool { return requests.Load() == 2 })
	ended("during another verification")
	expect.Equal(t, requests.Load(), int64(2))
	close(hold)
	both.Wait()
	if _, err := m.Verify(t.Context(), schema.GroupResource{Resource: "nodes"}, fleet.VerifyOptions{}); !errors.Is(err,
		fleet.ErrNotMirrored) {
		t.Errorf("a resource that is not mirrored: %v", err)
	}
}

// TestVerify_busyServer checks that a server that asks for a pause gets it, and that the
// verification continues with the same page.
func TestVerify_busyServer(t *testing.T) {
	var refused atomic.Int64
	_, m, _ := verified(t, &simulated.Options{Pods: 100}, &fleet.Options{}, func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport{next, func(r *http.Request) *http.Response {
				if refused.Add(1) > 1 {
					return nil
				}
				resp := refuseVersion(r)
				resp.StatusCode, resp.Status = http.StatusTooManyRequests, "429 Too Many Requests"
				resp.Header.Set("Retry-After", "1")
				return resp
			}}
		})
	})
	began := time.Now()
	if v := verifyCopy(t, m, fleet.VerifyOptions{}); v.Objects != 100 || v.Divergences() != 0 {
		t.Errorf("the result is %v", v)
	}
	if took := time.Since(began); took < time.Second || refused.Load() != 2 {
		t.Errorf("%d requests, in %s", refused.Load(), took)
	}
}

// TestVerify_transformed verifies a copy that does not keep everything.
func TestVerify_transformed(t *testing.T) {
	random := verifySeed(t)
	opts := &fleet.Options{Drop: wire.ManagedFields | wire.LastApplied,
		Transform: func(o *wire.Object) (*wire.Object, error) {
			pod, err := wire.DecodeFresh[*corev1.Pod](o)
			if err != nil {
				return nil, err
			}
			pod.Spec.Volumes, pod.Annotations = nil, nil
			return wire.Encode(pod, o.Encoding(), o.Kind())
		}}
	_, m, _ := verified(t, &simulated.Options{Pods: 500}, opts, nil)
	for _, deep := range []bool{false, true} {
		if v := verifyCopy(t, m, fleet.VerifyOptions{Deep: deep}); v.Divergences() > 0 || v.Objects != 500 {
			t.Errorf("deep %t: %v %v", deep, v, v.Examples)
		}
	}
	injected := inject(t, random, m, 20, false, func(string) bool { return true })
	wantFound(t, verifyCopy(t, m, fleet.VerifyOptions{Deep: true}), injected)
}

// TestVerify_onSchedule checks that a fleet verifies all its resources by itself, and
// repairs them.
func TestVerify_onSchedule(t *testing.T) {
	random := verifySeed(t)
	c, m, _ := verified(t, &simulated.Options{Pods: 500}, &fleet.Options{VerifyEvery: 200 * time.Millisecond}, nil)
	inject(t, random, m, 20, false, func(string) bool { return true })
	expect.Eventually(t, 20*time.Second, func() error {
		if s := m.Stats().Verification; s.Repairs == 0 || s.Diverged > 0 {
			return fmt.Errorf("the counts are %+v", s)
		}
		for _, r := range m.Resources() {
			if r.Verified == nil && r.Resource.Resource != "customresourcedefinitions" &&
				r.Resource.Resource != "apiservices" {
				return fmt.Errorf("%s was not verified", r.Resource)
			}
		}
		return nil
	})
	// A comparison of metadata does not find wrong content, but a list repairs it.
	wantSame(t, c, m)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 400 * time.Millisecond
)

// TestElection lets candidates of client-go elect a leader through the replica, whether or
// not the replica mirrors leases, and at the API server for comparison. There is never more
// than one leader, and another candidate takes over when the leader is cut off or resigns.
func TestElection(t *testing.T) {
	p := startPassing(t, &kubetest.Options{Name: "one"}, "--resources", "*")
	mirroring := passTo(t, p.cluster) // the program mirrors leases unless the flag says otherwise
	if got := sourceOfLeases(t, p.through); got != "passed-on" {
		t.Errorf("the source of leases is %q: they are mirrored", got)
	}
	expect.Soon(t, "leases are mirrored", func() bool { return sourceOfLeases(t, mirroring.through) == "" })
	var all sync.WaitGroup
	for lease, at := range map[string]*rest.Config{
		"direct": p.direct, "passed": p.through, "mirrored": mirroring.through,
	} {
		all.Go(func() {
			e := &election{T: t, lease: lease, at: at, truth: p.client(t, p.direct)}
			e.run()
		})
	}
	all.Wait()
}

// sourceOfLeases returns the header that names the server which answers a list of leases, ""
// for the copy.
func sourceOfLeases(t *testing.T, c *rest.Config) string {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(c.Host + "/apis/coordination.k8s.io/v1/leases")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return resp.Header.Get("Watershed-Source")
}

// election is a lease that candidates compete for.
type election struct {
	*testing.T
	lease string
	// at is the access of the candidates.
	at    *rest.Config
	truth *kubernetes.Clientset
	// leaders is how many candidates lead now.
	leaders atomic.Int32
}

// candidate runs until it resigns, or until it does not lead any more.
type candidate struct {
	id      string
	leads   chan struct{} // closed when it leads
	ended   chan struct{}
	resign  context.CancelFunc
	severed atomic.Bool
}

var errSevered = errors.New("the candidate is cut off")

// start starts a candidate.
func (e *election) start(id string) *candidate {
	ctx, cancel := context.WithCancel(e.Context())
	c := &candidate{id: id, leads: make(chan struct{}), ended: make(chan struct{}), resign: cancel}
	cfg := rest.CopyConfig(e.at)
	cfg.Timeout = renewDeadline / 2
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return severable{next, &c.severed} })
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		e.Error(err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: e.lease},
			Client:    client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				e.leaders.Add(1)
				// On a busy machine the leader before may learn of its end a little late.
				late := time.Now().Add(retryPeriod)
				for e.leaders.Load() != 1 && time.Now().Before(late) {
					time.Sleep(time.Millisecond)
				}
				if n := e.leaders.Load(); n != 1 {
					e.Errorf("lease %s: %d leaders after %s has begun", e.lease, n, id)
				}
				close(c.leads)
			},
			OnStoppedLeading: func() {
				select {
				case <-c.leads:
					e.leaders.Add(-1)
				default:
				}
			},
		},
	})
	if err != nil {
		e.Error(err)
	}
	go func() {
		defer close(c.ended)
		elector.Run(ctx)
	}()
	return c
}

// severable is a transport that fails from some time on.
type severable struct {
	http.RoundTripper
	severed *atomic.Bool
}

// RoundTrip implements [http.RoundTripper].
func (s severable) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.severed.Load() {
		return nil, errSevered
	}
	return s.RoundTripper.RoundTrip(r)
}

// run elects leaders.
func (e *election) run() {
	first := e.start("first")
	e.await(first)
	second := e.start("second")
	time.Sleep(2 * leaseDuration) // the second must not take the lease, which the first renews
	e.holds(first)

	began := time.Now()
	first.severed.Store(true)
	e.await(second)
	failOver := time.Since(began)
	<-first.ended
	e.holds(second)

	third := e.start("third")
	time.Sleep(leaseDuration) // the third must not take it either
	e.holds(second)
	began = time.Now()
	second.resign()
	e.await(third)
	handOver := time.Since(began)
	<-second.ended
	e.holds(third)
	third.resign()
	<-third.ended
	e.Logf("lease %s: another candidate leads %s after the leader was cut off, and %s after it resigned", e.lease,
		failOver.Round(time.Millisecond), handOver.Round(time.Millisecond))
	if handOver >= leaseDuration {
		e.Errorf("lease %s: it was not released", e.lease)
	}
}

// await waits until a candidate leads.
func (e *election) await(c *candidate) {
	select {
	case <-c.leads:
	case <-time.After(patience):
		e.Errorf("lease %s: %s does not lead", e.lease, c.id)
	}
}

// holds checks that a candidate leads, and that the API server says so.
func (e *election) holds(c *candidate) {
	select {
	case <-c.ended:
		e.Errorf("lease %s: %s does not lead any more", e.lease, c.id)
	default:
	}
	lease, err := e.truth.CoordinationV1().Leases(metav1.NamespaceDefault).Get(e.Context(), e.lease,
		metav1.GetOptions{})
	if err != nil {
		e.Error(err)
		return
	}
	if holder := *lease.Spec.HolderIdentity; holder != c.id || e.leaders.Load() != 1 {
		e.Errorf("lease %s: %s holds it, want %s; %d lead", e.lease, holder, c.id, e.leaders.Load())
	}
}

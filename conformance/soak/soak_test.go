// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	duration = flag.Duration("soak.time", 25*time.Second, "how long to write")
	kills    = flag.Int("soak.kills", 1, "how often to kill the replica meanwhile")
	rate     = flag.Int("soak.rate", 100, "how many writes there should be in a second")
	seeded   = flag.Uint64("soak.seed", 0, "what the writes are drawn from; 0 is any")
)

// subjectVariable set to "server" makes the clients use kube-apiserver.
const subjectVariable = "WATERSHED_SUBJECT"

const (
	// patience is the timeout for operations that normally take no time, on a machine
	// that is busy with other tests.
	patience = 2 * time.Minute
	// errorsPerKill is how many lines of errors an informer may log for each kill of the
	// subject.
	errorsPerKill = 3
	// calm is how long there must be no errors in the end.
	calm = 10 * time.Second
)

// soak is a run.
type soak struct {
	*testing.T
	rng       *rand.Rand
	cluster   *kubetest.Cluster
	subject   subject
	log       *grievances
	churn     *churn
	followers *followers
	monitor   *monitor
	reader    *reader
	operator  *operator

	killed  atomic.Int32
	settled time.Time // after the last kill
}

func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	seed := *seeded
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: %v, %d kills, %d writes per second", seed, *duration, *kills, *rate)
	s := newSoak(t, seed)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context){s.followers.run, s.reader.run} {
		running.Go(func() { part(ctx) })
	}
	// The subject ends after its clients, and the informers end before their records are
	// checked.
	defer s.judge()
	defer running.Wait()
	defer cancel()
	s.begin()
	s.live()
	s.settle()
}

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{T: t, rng: rand.New(rand.NewPCG(seed, 1<<32)), log: listenToKlog(t)}
	s.cluster = kubetest.Start(t, &kubetest.Options{Name: clusterName, Nodes: 4})
	defineSites(t, s.cluster)
	s.churn = newChurn(t, s.cluster, seed, *rate)
	s.subject = newSubject(t, s.cluster)
	cfg, err := restConfig(s.subject)
	if err != nil {
		t.Fatal(err)
	}
	s.followers = newFollowers(t, cfg, func() bool { return s.killed.Load() > 0 })
	s.monitor = newMonitor(s.followers)
	s.reader = newReader(t, cfg, s.cluster)
	// It reads from the subject and writes to the cluster.
	s.operator = startOperator(t, s.cluster, "-kubeconfig", s.cluster.Kubeconfig(), "-read-from",
		s.subject.kubeconfig())
	return s
}

// begin waits until every informer has all objects.
func (s *soak) begin() {
	s.Helper()
	began := time.Now()
	took := s.inStep(began)
	s.Logf("%d informers in step after %v to %v", len(took), took[0], took[len(took)-1])
}

// live writes, and kills the subject from time to time.
func (s *soak) live() {
	s.Helper()
	began, before := time.Now(), s.revision()
	ctx, cancel := context.WithTimeout(s.Context(), *duration)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.churn.run(ctx) })
	running.Go(func() { s.monitor.run(ctx) })
	for n := range *kills {
		// A kill is in the middle of its share of the time.
		at := time.Duration(2*n+1) * *duration / time.Duration(2**kills)
		select {
		case <-ctx.Done():
			return
		case <-time.After(at - time.Since(began)):
		}
		s.kill()
	}
	<-ctx.Done()
	running.Wait()
	writes, changes := s.churn.writes.Load(), s.revision()-before
	s.Logf("%v: %d writes (%.0f per second), %d refused, %d without an answer; with those of the controllers %d "+
		"changes (%.0f per second)", *duration,
		writes, float64(writes)/duration.Seconds(), s.churn.refused.Load(), s.churn.lost.Load(), changes,
		float64(changes)/duration.Seconds())
}

// revision returns etcd's revision.
func (s *soak) revision() int64 {
	s.Helper()
	truth, err := s.cluster.Truth(s.Context(), core.WithResource("namespaces").GroupResource())
	if err != nil {
		s.Fatal(err)
	}
	return truth.Revision
}

// kill ends the subject, starts it again after a while and waits for the informers.
func (s *soak) kill() {
	s.Helper()
	s.killed.Add(1)
	s.subject.kill()
	away := time.Second + time.Duration(s.rng.IntN(5000))*time.Millisecond
	time.Sleep(away) // the informers try to connect in this time
	began := time.Now()
	if err := s.subject.start(s.Context()); err != nil {
		s.Fatal(err)
	}
	ready := time.Since(began)
	s.monitor.forgive()
	took := s.inStep(began)
	s.settled = time.Now()
	s.Logf("kill %d: away for %v, ready %v after it was started again, %d informers in step after %v to %v, half of "+
		"them by %v",
		s.killed.Load(), away, ready.Round(time.Millisecond), len(took), took[0], took[len(took)-1], took[len(took)/2])
}

// inStep waits until the informers have the current state of etcd.
func (s *soak) inStep(since time.Time) []time.Duration {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	took, err := s.monitor.inStep(ctx, s.cluster, since)
	if err != nil {
		s.Fatal(err)
	}
	for i := range took {
		took[i] = took[i].Round(100 * time.Millisecond)
	}
	return took
}

// settle waits until everything is equal to etcd and the operator has done its work.
func (s *soak) settle() {
	s.Helper()
	ctx := s.Context()
	began := time.Now()
	wait := func(what string, ask func() (int, error)) int {
		soon, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var n int
		err := expect.Until(soon, func() (err error) {
			n, err = ask()
			return err
		})
		if err != nil {
			s.Fatalf("%s after %v: %v", what, time.Since(began).Round(time.Second), err)
		}
		return n
	}
	quiet := func() {
		last := time.Now()
		wait("the cluster", changes(ctx, s.cluster))
		began = time.Now()
		s.Logf("the controllers were done %v after the last write", began.Sub(last).Round(time.Second))
	}
	equal := func() {
		objects := wait("informers", func() (int, error) { return s.followers.equalToEtcd(ctx, s.cluster) })
		s.Logf("%d objects of %d informers equal to etcd %v after that", objects, len(s.followers.all),
			time.Since(began).Round(100*time.Millisecond))
	}
	quiet()
	equal()
	wait("operator", func() (int, error) { return s.operator.reconciled(ctx, false) })

	// After they were quiet, the operator and the controllers must react to a change, and
	// become quiet again.
	if err := s.operator.nudge(ctx); err != nil {
		s.Fatal(err)
	}
	count := wait("operator, with pods", func() (int, error) { return s.operator.reconciled(ctx, true) })
	s.Logf("%d sites as they should be", count)
	quiet()
	equal()
	from := len(s.operator.lines(0))
	time.Sleep(calm) // no error may be logged in this time
	if lines := s.operator.errors(from); len(lines) > 0 {
		s.Errorf("the operator still fails:\n%s", strings.Join(lines, "\n"))
	}
}

// changes returns a function that returns an error until controllers have made no changes
// for a while. Nodes and leases always change.
func changes(ctx context.Context, c *kubetest.Cluster) func() (int, error) {
	var newest int64
	var since time.Time
	return func() (int, error) {
		var now int64
		for _, resource := range []string{"pods", "events"} {
			truth, err := c.Truth(ctx, core.WithResource(resource).GroupResource())
			if err != nil {
				return 0, err
			}
			for _, o := range truth.Objects {
				now = max(now, o.Revision)
			}
		}
		if now != newest {
			newest, since = now, time.Now()
		}
		if time.Since(since) < 3*time.Second {
			return 0, fmt.Errorf("the last change was %v ago", time.Since(since))
		}
		return int(now), nil
	}
}

// judge checks what was recorded.
func (s *soak) judge() {
	s.Helper()
	var total counts
	for _, f := range s.followers.all {
		c, faults := f.ledger.report()
		total.plus(c)
		for _, fault := range faults {
			s.Errorf("%s: %s", f.name, fault)
		}
		if c.adds == 0 {
			s.Errorf("%s: nothing was ever added", f.name)
		}
	}
	s.Logf("events: %d adds, %d updates and %d told again, %d deletes and %d of them missed; %d faults",
		total.adds, total.updates-total.again, total.again, total.deletes, total.unknown, total.faults)
	for _, fault := range s.monitor.report() {
		s.Error(fault)
	}
	answers, wrong := s.reader.report()
	s.Logf("answers:%s", answers)
	if len(wrong) > 0 {
		s.Errorf("what is always there: %s", strings.Join(wrong, ", "))
	}
	lines := s.log.since(time.Time{})
	s.Logf("%d lines of errors of client-go:%s", len(lines), tally(lines))
	if most := *kills * errorsPerKill * len(s.followers.all); len(lines) > most {
		s.Errorf("client-go logged %d errors, more than %d", len(lines), most)
	}
	if late := s.log.since(s.settled); *kills > 0 && len(late) > 0 {
		s.Errorf("%d errors after the last kill had settled:\n%s", len(late),
			strings.Join(late[:min(5, len(late))], "\n"))
	}
	said := s.operator.errors(0)
	s.Logf("%d errors of the operator:%s", len(said), tally(said))
	complaints := s.subject.complaints()
	s.Logf("%d complaints of the subject:%s", len(complaints), tally(complaints))
	if err := errors.Join(panics(complaints), panics(s.operator.lines(0))); err != nil {
		s.Error(err)
	}
}

// panics returns an error if a log has a panic.
func panics(lines []string) error {
	for _, line := range lines {
		if strings.Contains(line, "panic") {
			return fmt.Errorf("a panic: %s", line)
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/reflector"
)

// lines is a log that a test reads while it is written.
type lines struct{ expect.Output }

// take returns the lines since the last call, without times, durations and numbers of
// objects.
func (l *lines) take() []string {
	text := strings.TrimSpace(l.Take())
	if text == "" {
		return nil
	}
	return strings.Split(varying.ReplaceAllString(text, ""), "\n")
}

// count returns the number of lines since the last take.
func (l *lines) count() int {
	return strings.Count(l.String(), "\n")
}

var varying = regexp.MustCompile(`(?m)^time=\S+ | (?:objects|expected|after)=\S+| err=.*$`)

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// fixed is a directory that does not change.
type fixed map[string]*rest.Config

func (d fixed) Follow(_ context.Context, notify func([]Entry)) error {
	var entries []Entry
	for name, cfg := range d {
		entries = append(entries, Entry{Name: name, Config: cfg, Access: cfg.Host})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	notify(entries)
	return nil
}

// TestJournal_oneLinePerClusterAndChange disconnects a cluster from the network and
// reconnects it, while its resources are retried many times.
func TestJournal_oneLinePerClusterAndChange(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	network, err := kubetest.NewProxy(s.Cluster(0).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	log := &lines{}
	f, err := New(fixed{"a": network.Config(s.Cluster(0).Config()), "b": s.Cluster(1).Config()}, &Options{
		Logger: log.logger(), Reflector: reflector.Options{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.journal.cadence = cadence{
		pace: 5 * time.Millisecond, sweep: time.Minute, burst: time.Millisecond, failure: 20 * time.Millisecond, patience: time.Minute,
		progress: time.Minute, idle: time.Minute,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: never; log:\n%s", what, strings.Join(log.take(), "\n"))
			}
		}
	}
	expect := func(want ...string) {
		t.Helper()
		until(fmt.Sprintf("%d lines", len(want)), func() bool { return log.count() >= len(want) })
		got := log.take()
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log, wanted (-) and written (+):\n%s", diff)
		}
	}
	until("members", func() bool { return len(f.Members()) == 2 })
	a := f.Members()[0]
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := a.Status().Resources
	expect(
		fmt.Sprintf("level=INFO msg=\"cluster live\" cluster=a resources=%d", n),
		fmt.Sprintf("level=INFO msg=\"cluster live\" cluster=b resources=%d", n),
		fmt.Sprintf("level=INFO msg=\"first sync done\" clusters=2 live=2 unreachable=0 resources=%d synced=%d", 2*n, 2*n),
	)

	network.Down()
	expect(fmt.Sprintf("level=WARN msg=\"cluster unreachable\" cluster=a resources=%d", n))
	until("many retries", func() bool {
		return !slices.ContainsFunc(a.Resources(), func(r ResourceStatus) bool { return r.Reflector.Failures < 10 })
	})
	expect()
	if err := network.Up(); err != nil {
		t.Fatal(err)
	}
	expect(fmt.Sprintf("level=INFO msg=\"cluster live again\" cluster=a resources=%d", n))
	until("live", func() bool { return a.Status().State == Live })
	expect()
}

// ledger is a memberLog whose member is described by a test.
type ledger struct {
	*memberLog
	t   *testing.T
	log *lines
	now time.Time
	// failing has, for each resource that fails, the time of its first failure and of its
	// last retry.
	failing map[string][2]time.Time
	broken  error // the error of failing resources
	x       examination
}

func newLedger(t *testing.T) *ledger {
	log := &lines{}
	f, err := New(noDirectory{}, &Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l := &ledger{memberLog: newMemberLog(f.newMember("a"), defaultCadence), t: t, log: log, now: now, failing: map[string][2]time.Time{}, broken: apierrors.NewInternalError(errors.New("broken"))}
	l.x = examination{joined: now, Status: Status{State: Connecting, Resources: 10}}
	return l
}

// fail makes resources fail, or fail again.
func (l *ledger) fail(names ...string) {
	for _, name := range names {
		since := l.now
		if was, ok := l.failing[name]; ok {
			since = was[0]
		}
		l.failing[name] = [2]time.Time{since, l.now}
	}
}

func (l *ledger) heal(names ...string) {
	for _, name := range names {
		delete(l.failing, name)
	}
}

// after lets time pass, and checks what was logged.
func (l *ledger) after(d time.Duration, want ...string) {
	l.t.Helper()
	for end := l.now.Add(d); l.now.Before(end); {
		l.now = l.now.Add(time.Second)
		x := l.x
		for _, name := range slices.Sorted(maps.Keys(l.failing)) {
			r := ResourceStatus{Resource: schema.GroupVersionResource{Resource: name}}
			r.Synced, r.Reflector.StaleSince, r.Reflector.ErrAt, r.Reflector.Err = true, l.failing[name][0], l.failing[name][1], l.broken
			x.Failing = append(x.Failing, r)
			x.State = Stale
			if x.Err == nil {
				x.Err = r.Reflector.Err
			}
		}
		l.update(l.now, x)
	}
	if diff := cmp.Diff(want, l.log.take()); diff != "" {
		l.t.Errorf("log, wanted (-) and written (+):\n%s", diff)
	}
}

func TestFirstOf(t *testing.T) {
	one, two := errors.New("discover /api: refused"), errors.New("discover /apis: refused")
	for _, c := range []struct{ err, want error }{{nil, nil}, {one, one}, {errors.Join(one, two), one}} {
		if got := firstOf(c.err); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("of %v it is %v", c.err, got)
		}
	}
}

func letters(n int) []string { return strings.Split("abcdefghij"[:n], "") }

// TestPage_resources has resources fail in a cluster that responds.
func TestPage_resources(t *testing.T) {
	l := newLedger(t)
	l.after(time.Minute)
	l.x.State = Syncing
	l.after(time.Minute)
	l.x.State = Live
	l.after(time.Minute, `level=INFO msg="cluster live" cluster=a resources=10`)

	l.fail("b")
	l.after(2 * time.Second)
	l.heal("b")
	l.after(time.Minute) // the failure was too short to be logged

	l.fail("b", "c")
	l.after(time.Minute, `level=WARN msg="resource not current" cluster=a resource=b`, `level=WARN msg="resource not current" cluster=a resource=c`)
	l.heal("c")
	l.after(time.Minute, `level=INFO msg="resource current again" cluster=a resource=c`)
	l.fail(letters(9)...)
	l.after(time.Minute, `level=WARN msg="resources not current" cluster=a failing=8 resources=10 first=a,c,d,e,f`)
	l.heal(letters(9)...)
	l.after(time.Minute, `level=INFO msg="resources current again" cluster=a resources=9`)
	if !l.settled() {
		t.Error("the log is not settled though nothing fails")
	}

	// Without a response the whole cluster may be failing.
	l.broken = errors.New("connection refused")
	l.fail("b")
	l.after(9 * time.Second)
	l.after(time.Minute, `level=WARN msg="resource not current" cluster=a resource=b`)
}

// TestPage_recovery has a cluster respond again, and its resources be retried one after
// the other. It is live again after all retries, and a resource that still fails is
// logged after that.
func TestPage_recovery(t *testing.T) {
	l := newLedger(t)
	l.x.State = Live
	l.after(time.Second, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.fail(letters(10)...)
	l.after(time.Minute, `level=WARN msg="cluster unreachable" cluster=a resources=10`)
	l.heal("a", "b")
	l.after(20 * time.Second)
	l.heal(letters(9)...)
	l.after(10 * time.Second)
	l.fail("j")
	l.after(time.Second, `level=WARN msg="cluster answers, but not all of its resources can be read" cluster=a resources=10 failing=1`, `level=WARN msg="resource not current" cluster=a resource=j`)
	l.heal("j")
	l.after(time.Second, `level=INFO msg="resource current again" cluster=a resource=j`)
}

// TestPage_accessRefused has a cluster that responds and refuses everything, from the
// start and later.
func TestPage_accessRefused(t *testing.T) {
	l := newLedger(t)
	l.x.Resources, l.x.Err = 0, fmt.Errorf("discovery: %w", apierrors.NewUnauthorized("no"))
	l.after(time.Minute, `level=WARN msg="cluster refuses access" cluster=a`)
	l.x.Err = errors.New("connection refused")
	l.after(time.Minute, `level=WARN msg="cluster unreachable" cluster=a`)
	l.x.State, l.x.Resources, l.x.Err = Syncing, 10, nil
	l.after(time.Minute)
	l.x.State = Live
	l.after(time.Minute, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.x.Err = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	l.fail(letters(10)...)
	l.after(time.Minute, `level=WARN msg="cluster refuses access" cluster=a resources=10`)
}

// TestPage_others has failures that are not those of a resource.
func TestPage_others(t *testing.T) {
	l := newLedger(t)
	l.x.State = Live
	l.after(time.Second, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.x.discovery, l.x.unlisted = errors.New("group x"), errors.New("secret")
	l.after(time.Minute, `level=WARN msg="discovery incomplete" cluster=a`, `level=WARN msg="credentials cannot be read: the previous ones stay in use" cluster=a`)
	l.x.discovery, l.x.unlisted = nil, nil
	l.after(time.Minute, `level=INFO msg="discovery complete again" cluster=a`, `level=INFO msg="credentials can be read again" cluster=a`)

	// A failure that ends just before it would be logged is not logged.
	l.x.discovery, l.x.unlisted = errors.New("group x"), errors.New("secret")
	l.after(l.patience)
	l.x.discovery, l.x.unlisted = nil, nil
	l.after(time.Minute)

	r := ResourceStatus{Resource: schema.GroupVersionResource{Resource: "pods"}}
	l.x.all = []ResourceStatus{r, r}
	for dropped := range uint64(10) {
		l.x.all[0].Reflector.Dropped = dropped
		l.after(time.Second, map[uint64][]string{
			1: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			2: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			4: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			8: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
		}[dropped]...)
	}
	l.x.all[0].Reflector.Restores, l.x.all[1].Reflector.Restores = 1, 1
	l.after(time.Minute, `level=ERROR msg="the cluster's data has gone back: etcd was restored from a backup" cluster=a resources=2`)
}

// TestFirstSync_progress checks the lines about progress while clusters sync.
func TestFirstSync_progress(t *testing.T) {
	log := &lines{}
	f, err := New(noDirectory{}, &Options{Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p := progress{clusters: 3}
	count := func(d time.Duration, step func()) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(time.Second) {
			step()
			f.journal.sync.update(now, p, f.journal)
		}
		return len(log.take())
	}
	if n := count(61*time.Second, func() { p.objects++ }); n != 12 {
		t.Errorf("%d lines in a minute of progress, want 12", n)
	}
	if n := count(3*time.Minute, func() {}); n > 4 {
		t.Errorf("%d lines in three minutes without progress, want 3", n)
	}
	p.live, p.unreachable = 2, 1
	f.journal.sync.update(now, p, f.journal)
	if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "first sync done") || !f.journal.sync.done {
		t.Errorf("in the end %q", got)
	}
}

// TestJournal_manyClusters bounds the log of the first sync: of many clusters only the
// progress of all is logged.
func TestJournal_manyClusters(t *testing.T) {
	for _, n := range []int{mostNamed, mostNamed + 1, 1000} {
		log := &lines{}
		f, err := New(noDirectory{}, &Options{Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		var members []*Member
		for i := range n {
			m := f.newMember(fmt.Sprintf("m-%d", i))
			m.discovered = time.Now()
			members = append(members, m)
		}
		j := newJournal(func() []*Member { return members }, log.logger())
		j.examine(time.Now(), true)
		named, done := 0, 0
		for _, line := range log.take() {
			switch {
			case strings.Contains(line, `level=INFO msg="cluster live"`):
				named++
			case strings.Contains(line, `msg="first sync done"`):
				done++
			}
		}
		if want := map[bool]int{true: n}[n <= mostNamed]; named != want || done != 1 {
			t.Errorf("%d clusters: %d lines of single clusters, want %d, and %d of all", n, named, want, done)
		}
		// A cluster that joins later has its line.
		late := f.newMember("late")
		late.discovered = time.Now()
		members = append(members, late)
		j.examine(time.Now(), true)
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], `msg="cluster live" cluster=late`) {
			t.Errorf("%d clusters and one more: %q", n, got)
		}
	}
}

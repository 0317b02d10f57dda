// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package journal

import (
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

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/internal/expect"
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

var varying = regexp.MustCompile(`(?m)^time=\S+ | (?:objects|expected|after)=\S+| err=.*$`)

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// cluster is a member that is live and has no resources.
type cluster struct {
	logger *slog.Logger
	joined time.Time
}

func newCluster(name string, log *lines) *cluster {
	return &cluster{log.logger().With("cluster", name), time.Now()}
}

func (c *cluster) Logger() *slog.Logger { return c.logger }
func (c *cluster) Examine() Examination {
	return Examination{Joined: c.joined, Status: health.Status{State: health.Live, Since: c.joined}}
}
func (c *cluster) Observe(time.Time, []health.ResourceStatus) {}
func (c *cluster) RequestDiscovery()                          {}

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
	x       Examination
}

func newLedger(t *testing.T) *ledger {
	log := &lines{}
	now := time.Now()
	l := &ledger{
		memberLog: newMemberLog(newCluster("a", log), DefaultCadence),
		t:         t,
		log:       log,
		now:       now,
		failing:   map[string][2]time.Time{},
		broken:    apierrors.NewInternalError(errors.New("broken")),
	}
	l.x = Examination{Joined: now, Status: health.Status{State: health.Connecting, Resources: 10}}
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
			r := health.ResourceStatus{Resource: schema.GroupVersionResource{Resource: name}}
			r.Synced, r.Reflector.StaleSince, r.Reflector.ErrAt, r.Reflector.Err = true, l.failing[name][0],
				l.failing[name][1], l.broken
			x.Failing = append(x.Failing, r)
			x.State = health.Stale
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
	l.x.State = health.Syncing
	l.after(time.Minute)
	l.x.State = health.Live
	l.after(time.Minute, `level=INFO msg="cluster live" cluster=a resources=10`)

	l.fail("b")
	l.after(2 * time.Second)
	l.heal("b")
	l.after(time.Minute) // the failure was too short to be logged

	l.fail("b", "c")
	l.after(time.Minute, `level=WARN msg="resource not current" cluster=a resource=b`,
		`level=WARN msg="resource not current" cluster=a resource=c`)
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
	l.x.State = health.Live
	l.after(time.Second, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.fail(letters(10)...)
	l.after(time.Minute, `level=WARN msg="cluster unreachable" cluster=a resources=10`)
	l.heal("a", "b")
	l.after(20 * time.Second)
	l.heal(letters(9)...)
	l.after(10 * time.Second)
	l.fail("j")
	l.after(time.Second,
		`level=WARN msg="cluster answers, but not all of its resources can be read" cluster=a resources=10 failing=1`,
		`level=WARN msg="resource not current" cluster=a resource=j`)
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
	l.x.State, l.x.Resources, l.x.Err = health.Syncing, 10, nil
	l.after(time.Minute)
	l.x.State = health.Live
	l.after(time.Minute, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.x.Err = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	l.fail(letters(10)...)
	l.after(time.Minute, `level=WARN msg="cluster refuses access" cluster=a resources=10`)
}

// TestPage_others has failures that are not those of a resource.
func TestPage_others(t *testing.T) {
	l := newLedger(t)
	l.x.State = health.Live
	l.after(time.Second, `level=INFO msg="cluster live" cluster=a resources=10`)
	l.x.Discovery, l.x.Unlisted = errors.New("group x"), errors.New("secret")
	l.after(time.Minute, `level=WARN msg="discovery incomplete" cluster=a`,
		`level=WARN msg="credentials cannot be read: the previous ones stay in use" cluster=a`)
	l.x.Discovery, l.x.Unlisted = nil, nil
	l.after(time.Minute, `level=INFO msg="discovery complete again" cluster=a`,
		`level=INFO msg="credentials can be read again" cluster=a`)

	// A failure that ends just before it would be logged is not logged.
	l.x.Discovery, l.x.Unlisted = errors.New("group x"), errors.New("secret")
	l.after(l.cadence.Patience)
	l.x.Discovery, l.x.Unlisted = nil, nil
	l.after(time.Minute)

	r := health.ResourceStatus{Resource: schema.GroupVersionResource{Resource: "pods"}}
	l.x.All = []health.ResourceStatus{r, r}
	for dropped := range uint64(10) {
		l.x.All[0].Reflector.Dropped = dropped
		l.after(time.Second, map[uint64][]string{
			1: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			2: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			4: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
			8: {`level=WARN msg="objects dropped" cluster=a resource=pods`},
		}[dropped]...)
	}
	l.x.All[0].Reflector.Restores, l.x.All[1].Reflector.Restores = 1, 1
	l.after(time.Minute,
		`level=ERROR msg="the cluster's data has gone back: etcd was restored from a backup" cluster=a resources=2`)
}

// TestFirstSync_progress checks the lines about progress while clusters sync.
func TestFirstSync_progress(t *testing.T) {
	log := &lines{}
	j := New(nil, log.logger())
	now := time.Now()
	p := progress{clusters: 3}
	count := func(d time.Duration, step func()) (n int) {
		for end := now.Add(d); now.Before(end); now = now.Add(time.Second) {
			step()
			j.sync.update(now, p, j)
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
	j.sync.update(now, p, j)
	if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "first sync done") || !j.sync.done {
		t.Errorf("in the end %q", got)
	}
}

// TestFirstSync_oneCluster says once that the first sync is done, also of a single cluster.
func TestFirstSync_oneCluster(t *testing.T) {
	log := &lines{}
	members := []Member{newCluster("one", log)}
	j := New(func() []Member { return members }, log.logger())
	for range 3 {
		j.examine(time.Now(), true)
	}
	if got := log.take(); len(got) != 2 || !strings.Contains(got[1], `msg="first sync done" clusters=1 live=1`) {
		t.Errorf("the log is %q, want one line of the cluster and one of all", got)
	}
}

// TestJournal_manyClusters bounds the log of the first sync: of many clusters only the
// progress of all is logged.
func TestJournal_manyClusters(t *testing.T) {
	for _, n := range []int{mostNamed, mostNamed + 1, 1000} {
		log := &lines{}
		var members []Member
		for i := range n {
			members = append(members, newCluster(fmt.Sprintf("m-%d", i), log))
		}
		j := New(func() []Member { return members }, log.logger())
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
		members = append(members, newCluster("late", log))
		j.examine(time.Now(), true)
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], `msg="cluster live" cluster=late`) {
			t.Errorf("%d clusters and one more: %q", n, got)
		}
	}
}

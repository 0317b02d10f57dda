// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/mirror"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// fragile is a source that fails a number of times, and a second later each time.
type fragile struct {
	empty
	failures int
}

func (s *fragile) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	time.Sleep(time.Second)
	if s.failures > 0 {
		s.failures--
		return reflector.Page{}, errors.New("no answer")
	}
	return s.empty.List(ctx, opts, each)
}

// awaited is a member in virtual time, and the result of a WaitForSync that a test has started.
type awaited struct {
	*Member
	done  chan error
	began time.Time
}

// await returns a member that has been discovered, with mirrors of some sources, and waits for it.
func await(t *testing.T, discovered bool, sources ...*fragile) *awaited {
	f, err := New(noDirectory{}, &Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := f.newMember("eu")
	m.end = func() {}
	for i, s := range sources {
		r := kube.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods")}
		r.Group = string(rune('a' + i))
		x := &mirror.Mirror{Cluster: "eu", Resource: r, Source: &upstream.Source{}, End: func() {}}
		x.Informer = watershed.FromSource(s, &watershed.SourceOptions[*wire.Object]{
			Window: 1,
			Reflector: reflector.Options{
				ListOnly: true, Logger: slog.New(mirror.Lowered(slog.DiscardHandler, m.server.Disturb)),
			},
		})
		m.mirrors.Add(x, false)
		m.mirrors.Go(func() { _ = x.Informer.Run(t.Context()) }) // ends with the test
	}
	t.Cleanup(m.mirrors.Wait)
	if discovered {
		m.discovered = time.Now()
	}
	a := &awaited{m, make(chan error, 1), time.Now()}
	go func() { a.done <- m.WaitForSync(t.Context()) }()
	synctest.Wait()
	return a
}

// ends expects that WaitForSync returns at a time, with an error or none.
func (a *awaited) ends(t *testing.T, after time.Duration, want error) {
	t.Helper()
	err := <-a.done
	if took := time.Since(a.began); took != after || !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Errorf("WaitForSync returned %v after %v, want %v after %v", err, took, want, after)
	}
}

// TestWaitForSync_returnsAtOnce has the state of a member change in each way that ends
// WaitForSync. No virtual time passes between the change and the return.
func TestWaitForSync_returnsAtOnce(t *testing.T) {
	for name, run := range map[string]func(t *testing.T){
		"resources sync, the last one first": func(t *testing.T) {
			slow := &fragile{failures: 1}
			a := await(t, true, slow, &fragile{})
			<-a.mirrors.Mirror(a.Resources()[0].Resource.GroupResource()).Informer.Synced()
			a.ends(t, time.Since(a.began), nil)
		},
		"a resource has failed too often": func(t *testing.T) {
			a := await(t, true, &fragile{}, &fragile{failures: health.Hopeless})
			for a.Resources()[1].Reflector.Failures < health.Hopeless {
				time.Sleep(time.Millisecond)
			}
			a.ends(t, time.Since(a.began), nil)
		},
		"the cluster leaves": func(t *testing.T) {
			a := await(t, true, &fragile{failures: 100})
			a.leave()
			a.ends(t, 0, ErrUnreachable)
		},
		"there is no configuration": func(t *testing.T) {
			a := await(t, false)
			time.Sleep(time.Minute)
			a.use(Entry{Err: errors.New("unreadable")})
			a.ends(t, time.Minute, ErrUnreachable)
		},
		"a resource is no longer served": func(t *testing.T) {
			a := await(t, true, &fragile{failures: 100})
			a.mirrors.End()
			a.ends(t, 0, nil)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// TestFleetWaitForSync_returnsAtOnce has a directory report that it has no clusters.
func TestFleetWaitForSync_returnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := New(noDirectory{}, &Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		f.running = t.Context()
		began, done := time.Now(), make(chan error, 1)
		go func() { done <- f.WaitForSync(t.Context()) }()
		time.Sleep(time.Minute)
		f.admit(nil)
		if err := <-done; err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

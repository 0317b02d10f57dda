// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// hasNote reports whether there is a note of the cluster.
func (r *run) hasNote() bool {
	text, err := r.files.Storage().Note("one")
	return text != nil && err == nil
}

// TestLastState_refusedForAMoment refuses the credentials of a cluster that is mirrored, and
// accepts them again. In between its last state must not be used after a restart.
func TestLastState_refusedForAMoment(t *testing.T) {
	t.Cleanup(fleet.DiscoverSoon())
	o := newOutage(t)
	expect.NoError(t, o.network.Up())
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		r.awaitLive(t)
		time.Sleep(time.Second) // the next discovery is minutes later
		o.at.refuse(http.StatusUnauthorized)
		o.at.CloseClientConnections()
		expect.Soon(t, "the end of the note", func() bool { return !r.hasNote() })
		r.member().Remember() // a discovery that succeeded before
		if r.hasNote() {
			t.Error("a note is stored although the credentials are refused")
		}
		o.at.refuse(0)
		expect.Soon(t, "a new note", r.hasNote)
	})
	o.network.Down()
	o.run(t, o.config(), true, func(t *testing.T, r *run) { r.awaitLast(t) })
}

// TestLastState_noteOfASuccessor has a member store the note of its cluster after another cluster
// has replaced it.
func TestLastState_noteOfASuccessor(t *testing.T) {
	o := newOutage(t)
	expect.NoError(t, o.network.Up())
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		r.awaitLive(t)
		first := r.member()
		o.at.lead(t, o.clusters.Cluster(1), "uid-1")
		expect.Soon(t, "another member", func() bool { return r.member() != first })
		r.awaitLive(t)
		r.member().Remember()
		first.Remember()
	})
	expect.Equal(t, o.notedUID(t), "uid-1")
}

// TestLastState_refusedWhileItEnds has the cluster refuse the credentials of the last mirror of a
// state that was dropped, while the next discovery waits for its end.
func TestLastState_refusedWhileItEnds(t *testing.T) {
	o := newOutage(t)
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		cursor := r.awaitLast(t)
		o.at.refuse(http.StatusNotFound)
		expect.NoError(t, o.network.Up())
		if _, err := cursor.Next(t.Context()); !errors.Is(err, fanout.ErrClosed) {
			t.Errorf("a reader of the last state ends with %v", err)
		}
		r.member().RecallWhile(t.Context(), func() error {
			time.Sleep(100 * time.Millisecond) // the note could be read in this time
			return apierrors.NewUnauthorized("expired")
		})
		r.expectNothing(t)
	})
	expect.Equal(t, o.notedUID(t), "")
}

// TestLastState_unwritableNote logs once that the note cannot be written, and writes it when that
// is possible again.
func TestLastState_unwritableNote(t *testing.T) {
	o := newOutage(t)
	expect.NoError(t, o.network.Up())
	path := o.notePath(t)
	expect.NoError(t, os.Remove(path))
	expect.NoError(t, os.Mkdir(path, 0o700)) // a file cannot replace it
	o.run(t, o.config(), true, func(t *testing.T, r *run) {
		r.awaitLive(t)
		for range 3 {
			r.member().Remember()
		}
		if n := strings.Count(r.log.String(), "cannot store the note"); n != 1 {
			t.Errorf("%d messages about the note", n)
		}
		expect.NoError(t, os.Remove(path))
		r.member().Remember()
	})
	expect.Equal(t, o.notedUID(t), "uid-0")
}

// TestIdentity_ofThePreviousConfiguration replaces the certificate authority while the server that
// the previous one has signed returns the UID. It does not count as returned over the new one.
func TestIdentity_ofThePreviousConfiguration(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 20})
	at := newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	at.held = make(chan struct{})
	ca, err := authority.New("another authority")
	expect.NoError(t, err)
	configure := func(ca []byte, token string) *rest.Config {
		cfg := at.config()
		cfg.TLSClientConfig, cfg.BearerToken = rest.TLSClientConfig{CAData: ca}, token
		return cfg
	}
	r := newRoster()
	r.set("one", configure(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: at.Certificate().Raw}), ""))
	f := start(t, r, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	expect.Soon(t, "the request for the UID", func() bool { return at.asked() > 0 })
	m, _ := f.Member("one")
	r.set("one", configure(ca.PEM(), "second"))
	expect.Soon(t, "the other configuration", func() bool { return m.Cluster().Config().BearerToken == "second" })
	close(at.held)
	expect.Soon(t, "a discovery with it", func() bool {
		return fleet.TroubleOf(m.Status().Err) == fleet.UnknownAuthority
	})
	expect.Equal(t, m.Returned(), "")
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// peersWorld is a replica with other replicas, which are the test.
type peersWorld struct {
	*simulatedReplica
	// sent has the last note that was sent, and refused means that it is not acknowledged.
	sent    atomic.Pointer[[]byte]
	refused atomic.Bool
	// apart means that not all replicas are connected.
	apart   atomic.Bool
	reports atomic.Pointer[[]replica.PeerReport]
}

// newPeers returns a replica whose cluster answers every write with a version that the copy never
// has. The user of a request is its Authorization. The user "denied" may not read anything, and
// "local" has credentials that cannot be passed on.
func newPeers(t *testing.T) *peersWorld {
	t.Helper()
	p := &peersWorld{}
	w, origins := newOriginsWith(t, 1, nil, &replica.Options{
		OriginTimeout: originTimeout, PassThrough: true,
		Peers: &replica.Peers{
			Send: func(_ context.Context, note []byte) bool {
				p.sent.Store(&note)
				return !p.refused.Load()
			},
			Complete: func() bool { return !p.apart.Load() },
			Reports:  func() []replica.PeerReport { return *p.reports.Load() },
		},
		Authorize: func(r *http.Request, q *replica.Request) (*replica.Access, error) {
			access := &replica.Access{User: r.Header.Get("Authorization")}
			switch access.User {
			case "denied":
				if !q.Passed {
					return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("denied"))
				}
			case "local":
				access.NoPassThrough = "it has a certificate"
			case "some":
				access.CanSee = func(*fleet.Member) bool { return false }
			}
			return access, nil
		},
	})
	p.simulatedReplica = w
	w.untilCopied(0)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || strings.Contains(r.URL.Path, "reviews") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"kind":"Pod","metadata":{"resourceVersion":"9999999999"}}`)
		return true
	})
	return p
}

// write writes as a user, and returns the warning of the response and the note that was sent.
func (p *peersWorld) write(user string) (warning, note string) {
	p.t.Helper()
	resp, text := p.send(http.MethodPost, p.root(0)+"/api/v1/namespaces/n/pods", "{}",
		"Authorization", user, "Content-Type", "application/json")
	expect.Equal(p.t, resp.StatusCode, http.StatusOK)
	if p.sent.Load() == nil {
		p.t.Fatalf("no note was sent: %s", text)
	}
	return resp.Header.Get("Warning"), string(*p.sent.Load())
}

// read lists pods as a user, and reports whether the cluster answered.
func (p *peersWorld) readAs(user string) (code int, fromCluster bool, warning string) {
	p.t.Helper()
	resp, _ := p.send(http.MethodGet, p.pods(0), "", "Authorization", user)
	return resp.StatusCode, resp.Header.Get("Watershed-Source") == "passed-on", resp.Header.Get("Warning")
}

// TestPeers_notes writes through one replica and reads through another.
func TestPeers_notes(t *testing.T) {
	a, b := newPeers(t), newPeers(t)
	warning, note := a.write("ann")
	expect.Equal(t, warning, "")
	if strings.Contains(note, "ann") {
		t.Errorf("a note names its user: %s", note)
	}
	if _, fromCluster, _ := b.readAs("ann"); fromCluster {
		t.Fatal("a read is passed on before there was a note")
	}
	for range 1000 { // a replayed note changes nothing
		expect.NoError(t, b.server.ReceiveNote([]byte(note)))
	}
	if code, fromCluster, _ := b.readAs("ann"); code != http.StatusOK || !fromCluster {
		t.Error("the copy answers, and does not have the write of its user")
	}
	if _, fromCluster, _ := b.readAs("eve"); fromCluster {
		t.Error("a read of another user is passed on")
	}

	a.refused.Store(true)
	if warning, _ := a.write("ann"); !strings.Contains(warning, "did not confirm") {
		t.Errorf("a write that was not acknowledged has the warning %q", warning)
	}
	a.apart.Store(true)
	if _, _, warning := a.readAs("eve"); !strings.Contains(warning, "not connected to all others") {
		t.Errorf("a read while the replicas are not connected has the warning %q", warning)
	}
	if _, _, warning := a.readAs("local"); warning != "" {
		t.Errorf("a caller that cannot write here gets the warning %q", warning)
	}
}

// TestPeers_attacks checks that a note delays reads of the user that it names, and does nothing else.
func TestPeers_attacks(t *testing.T) {
	a, b := newPeers(t), newPeers(t)
	_, note := a.write("denied")
	expect.NoError(t, b.server.ReceiveNote([]byte(note)))
	if code, fromCluster, _ := b.readAs("denied"); code != http.StatusForbidden || fromCluster {
		t.Errorf("a note about a user that may not read: %d, from the cluster: %v", code, fromCluster)
	}
	for _, invalid := range []string{"", "{}", note[1:], strings.Replace(note, "pods", "", 1)} {
		if err := b.server.ReceiveNote([]byte(invalid)); !errors.Is(err, replica.ErrInvalidNote) {
			t.Errorf("%q: %v", invalid, err)
		}
	}
	one := func(change func(n map[string]any)) error {
		var n map[string]any
		expect.NoError(t, json.Unmarshal([]byte(note), &n))
		change(n)
		raw, err := json.Marshal(n)
		expect.NoError(t, err)
		return b.server.ReceiveNote(raw)
	}
	expect.NoError(t, one(func(n map[string]any) { n["cluster"] = "unknown" }))
	expect.NoError(t, one(func(n map[string]any) { n["resource"] = "unknown" }))
	if err := one(func(n map[string]any) { n["uid"] = "other" }); err == nil {
		t.Error("a note about another cluster of the same name is accepted")
	}

	// A flood ends with an error, and the users of other notes read as before.
	objects := make([]map[string]any, 200)
	for i := range objects {
		objects[i] = map[string]any{"key": fmt.Sprintf("n/%d", i), "uid": "1"}
	}
	var err error
	for i := 0; err == nil && i < 10_000; i++ {
		err = one(func(n map[string]any) { n["user"], n["objects"] = fmt.Sprintf("%032x", i), objects })
	}
	if !errors.Is(err, replica.ErrTooManyNotes) {
		t.Fatalf("a flood of notes: %v", err)
	}
	if code, fromCluster, _ := b.readAs("eve"); code != http.StatusOK || fromCluster {
		t.Errorf("another user, during a flood: %d, from the cluster: %v", code, fromCluster)
	}
}

// TestPeers_reports checks which clusters of another replica a caller sees.
func TestPeers_reports(t *testing.T) {
	p := newPeers(t)
	name := p.clusters.Cluster(0).Name()
	at := time.Now()
	p.reports.Store(&[]replica.PeerReport{
		{
			Name: "slot 1", Address: "192.0.2.1:7444", Connected: true, At: at, Version: "v1",
			Clusters: []replica.ClusterReport{{Name: name, State: "live", Behind: 7}, {Name: "hidden", State: "live"}},
		},
		{Name: "slot 2", Error: "it has not answered", Address: "192.0.2.2:7444"},
		{Name: "slot 3", At: at, Clusters: []replica.ClusterReport{{Name: name, UID: "other"}}},
		{Name: "slot 4", At: at},
	})
	for user, want := range map[string]string{
		"all": "slot 1 192.0.2.1:7444 true [" + name + "/live/7/ hidden/live/0/only there]; " +
			"slot 2 192.0.2.2:7444 false []; " +
			"slot 3  false [" + name + "//0/another cluster]; slot 4  false [" + name + "//0/only here]; ",
		"some": "slot 1  true []; slot 2  false []; slot 3  false []; slot 4  false []; ",
	} {
		resp, text := p.send(http.MethodGet, "/clusters", "", "Authorization", user)
		expect.Equal(t, resp.StatusCode, http.StatusOK)
		var got document.Clusters
		expect.NoError(t, json.Unmarshal([]byte(text), &got))
		var b strings.Builder
		for _, one := range got.Replicas {
			var clusters []string
			for _, c := range one.Clusters {
				clusters = append(clusters, fmt.Sprintf("%s/%s/%d/%s", c.Name, c.State, c.Behind, c.Difference))
			}
			fmt.Fprintf(&b, "%s %s %v %v; ", one.Name, one.Address, one.Connected, clusters)
		}
		expect.Equal(t, b.String(), want)
	}
}

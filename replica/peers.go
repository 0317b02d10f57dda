// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
)

var (
	// ErrInvalidNote means that the bytes of a note cannot be understood.
	ErrInvalidNote = passthrough.ErrInvalidNote
	// ErrTooManyNotes means that the notes of other replicas take all the memory that they may.
	ErrTooManyNotes = passthrough.ErrTooManyNotes
)

// MaxNote is the largest note in bytes, see [Peers.Send].
const MaxNote = passthrough.MaxNote

// Peers connects a server with other replicas of the same clusters, so that a user that writes
// through one of them and then reads through another does not read a state from before the write.
// The program transports the notes of writes; they are bytes for it. The functions are called at
// the same time from several goroutines.
type Peers struct {
	// Send gives the note of a write to all other replicas, whose programs call
	// [Server.ReceiveNote], and reports whether all of them have accepted it. The response to the
	// write waits for it, and has a Warning otherwise.
	Send func(ctx context.Context, note []byte) (acknowledged bool)
	// Complete reports whether every other replica can send its notes to this one. While it does
	// not, the reads of callers that can write have a Warning.
	Complete func() bool
	// Reports returns what the other replicas report of themselves, for the document at /clusters.
	// Nil means that the document does not have it.
	Reports func() []PeerReport
}

// PeerReport is what another replica reports of itself.
type PeerReport struct {
	// Name identifies the replica, and Address is where it listens for others.
	Name, Address string
	// Connected means that both replicas can send to each other, and Error is why not.
	Connected bool
	Error     string
	// At is when the replica sent its report, zero if it has not.
	At time.Time
	// Version describes the program of the replica.
	Version string
	// Clusters are its clusters.
	Clusters []ClusterReport
}

// ClusterReport is what a replica reports of its copy of a cluster. It has no objects.
type ClusterReport struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
	// State is that of the document at /clusters.
	State     string `json:"state"`
	Synced    int    `json:"synced"`
	Resources int    `json:"resources"`
	Objects   int    `json:"objects"`
	// Version is the newest version of the API server that any resource of the copy has.
	Version uint64 `json:"version"`
	// Behind is by how many versions the copy of the other replica was behind that of this one when
	// the report arrived. It is negative if this one was behind.
	Behind int64 `json:"-"`
}

// ReceiveNote records the note of a write that another replica has passed on: reads of the same user
// wait for it, or are passed on. A note changes nothing else. Errors are [ErrInvalidNote],
// [ErrTooManyNotes], or others.
func (s *Server) ReceiveNote(raw []byte) error {
	n, err := passthrough.ParseNote(raw)
	if err != nil {
		return err
	}
	m, ok := s.fleet.Member(n.Cluster)
	if !ok || s.notes == nil {
		return nil // this server has no copy of it
	}
	return s.cluster(m).pass.Receive(n)
}

// warnOfPeers adds a warning to the response of a copy that may lack a write of the caller through
// another replica.
func (s *Server) warnOfPeers(h http.Header) {
	if s.notes != nil && !s.opts.Peers.Complete() {
		warning.Add(h, "this replica is not connected to all others: what you have just written through another "+
			"one may be missing for a moment")
	}
}

// Report returns what a server reports of its copies to others.
func Report(f *fleet.Fleet) []ClusterReport {
	members := f.Members()
	all := make([]ClusterReport, 0, len(members))
	for _, m := range members {
		is := m.Status()
		one := ClusterReport{
			Name: m.Name(), UID: is.Identity.UID, State: is.State.String(), Synced: is.Synced, Resources: is.Resources,
			Objects: is.Objects,
		}
		for _, mirrored := range m.Resources() {
			if feed, ok := m.Feed(mirrored.Resource.GroupResource()); ok {
				if now, err := feed.Now(); err == nil {
					one.Version = max(one.Version, now.Version)
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// peersSeen returns what a caller may see of the reports of other replicas: the clusters that the
// caller sees here. The rest is for callers that see all clusters.
func peersSeen(reports []PeerReport, seen *audience.Visible) []document.Replica {
	members := map[string]*fleet.Member{}
	for _, m := range seen.Members {
		members[m.Name()] = m
	}
	all := make([]document.Replica, 0, len(reports))
	for i := range reports {
		p := &reports[i]
		one := document.Replica{Name: p.Name, Connected: p.Connected, Reported: second(p.At), Version: p.Version}
		if seen.IsWhole() {
			one.Address, one.Error = p.Address, p.Error
		}
		there := map[string]bool{}
		for _, c := range p.Clusters {
			there[c.Name] = true
			m := members[c.Name]
			switch {
			case m != nil && m.Identity().UID != c.UID && m.Identity().UID != "" && c.UID != "":
				one.Clusters = append(one.Clusters,
					document.ReplicaCluster{Name: c.Name, Difference: document.OtherCluster})
			case m != nil || seen.IsWhole():
				copied := document.ReplicaCluster{
					Name: c.Name, State: c.State, Synced: c.Synced, Resources: c.Resources, Objects: c.Objects,
					Behind: c.Behind,
				}
				if m == nil {
					copied.Difference = document.OnlyThere
				}
				one.Clusters = append(one.Clusters, copied)
			}
		}
		for _, m := range seen.Members {
			if !p.At.IsZero() && !there[m.Name()] {
				one.Clusters = append(one.Clusters,
					document.ReplicaCluster{Name: m.Name(), Difference: document.OnlyHere})
			}
		}
		all = append(all, one)
	}
	return all
}

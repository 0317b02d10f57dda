// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
)

const (
	// MaxNote is the largest note in bytes. A write that changes more objects than fit into it is
	// sent as one of unknown effect.
	MaxNote = 64 << 10
	// ReceivedBytes is how many bytes the notes of other replicas may take for all clusters, see
	// [Notes].
	ReceivedBytes = 32 << 20
	// maxNoteText is how many bytes a key, a UID or a version in a note may have. The key of an
	// object has at most 317.
	maxNoteText = 512
	// receivedLife is how long after the last note of a user and resource these notes count, if the
	// copy is connected but does not get the write. A wrong note cannot send the reads of a user to
	// the cluster for longer.
	receivedLife = time.Minute
)

var (
	// ErrInvalidNote means that the bytes of a note cannot be understood.
	ErrInvalidNote = errors.New("invalid note of a write")
	// ErrTooManyNotes means that a note does not fit into the budget.
	ErrTooManyNotes = errors.New("too many notes of writes")
	// ErrOtherCluster means that the cluster of a note is another one than the cluster of the same
	// name here.
	ErrOtherCluster = errors.New("the note is about another cluster of this name")
)

// Notes connects the writes that this replica passes on with those of other replicas.
type Notes struct {
	// Send gives a note to all other replicas, and reports whether all of them have acknowledged
	// it. It waits a bounded time.
	Send func(ctx context.Context, note []byte) (acknowledged bool)
	// Received bounds the bytes of notes from other replicas, for all clusters, fairly between
	// users.
	Received *respond.Budget
}

// notAnnounced is the warning of a response whose note was not acknowledged.
const notAnnounced = "another replica did not confirm that it knows of this request: " +
	"reads through that replica may not show the result for a moment"

// Note is a write that was passed on by another replica, as it arrives from there.
type Note struct {
	// Cluster and UID are the name and the UID of the cluster. The UID is "" if it is not known.
	Cluster string `json:"cluster"`
	UID     string `json:"uid,omitempty"`
	// User is a digest of the user, who is not named.
	User     string       `json:"user"`
	Group    string       `json:"group,omitempty"`
	Resource string       `json:"resource"`
	Version  uint64       `json:"version,omitempty"`
	Unknown  bool         `json:"unknown,omitempty"`
	Objects  []noteChange `json:"objects,omitempty"`
}

// noteChange is a [change] in a note.
type noteChange struct {
	Key     string     `json:"key"`
	UID     types.UID  `json:"uid,omitempty"`
	Kind    changeKind `json:"kind,omitempty"`
	Version string     `json:"version,omitempty"`
}

// ParseNote returns the note in the bytes from another replica. The error is [ErrInvalidNote].
func ParseNote(raw []byte) (*Note, error) {
	var n Note
	if len(raw) > MaxNote {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrInvalidNote, len(raw))
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidNote, err)
	}
	user, err := hex.DecodeString(n.User)
	switch {
	case err != nil || len(user) != digestBytes:
		return nil, fmt.Errorf("%w: its user is not a digest", ErrInvalidNote)
	case n.Resource == "" || n.Version == 0 && len(n.Objects) == 0 && !n.Unknown:
		return nil, fmt.Errorf("%w: it has no effect", ErrInvalidNote)
	}
	for _, c := range n.Objects {
		if c.Key == "" || c.Kind > moved || max(len(c.Key), len(c.UID), len(c.Version)) > maxNoteText {
			return nil, fmt.Errorf("%w: an object in it", ErrInvalidNote)
		}
	}
	return &n, nil
}

// digestBytes is the length of the digest of a user.
const digestBytes = 16

// digestOf returns the digest of a user in notes. Another replica computes the same one for the
// requests of that user. The digest has the name of the cluster and its UID, because the user has
// them.
func digestOf(user string) string {
	sum := sha256.Sum256([]byte(user))
	return hex.EncodeToString(sum[:digestBytes])
}

// announce sends the note of a write to the other replicas, and reports whether they have it.
func (p *Forwarder) announce(ctx context.Context, q *Request, e effect) bool {
	if p.notes == nil || q.User == "" || e.isNone() {
		return true
	}
	resource := view.StoredAs(q.GroupResource())
	n := Note{
		Cluster: p.member.Name(), UID: p.member.Identity().UID, User: digestOf(q.User),
		Group: resource.Group, Resource: resource.Resource, Version: e.version, Unknown: e.unknown,
	}
	size := 0
	for _, c := range e.objects {
		size += len(c.key) + len(c.uid) + len(c.version) + len(`{"key":"","uid":"","kind":0,"version":""},`)
		n.Objects = append(n.Objects, noteChange{c.key, c.uid, c.kind, c.version})
	}
	if size > MaxNote/2 {
		n.Version, n.Objects, n.Unknown = 0, nil, true
	}
	raw, err := json.Marshal(&n)
	return err == nil && p.notes.Send(ctx, raw)
}

// Receive records a write of another replica: reads of its user wait for it. A note can delay a
// read, or send it to the cluster, and nothing else.
func (p *Forwarder) Receive(n *Note) error {
	if uid := p.member.Identity().UID; n.Cluster != p.member.Name() || uid != "" && n.UID != "" && uid != n.UID {
		return fmt.Errorf("cluster %s: %w", p.member.Name(), ErrOtherCluster)
	}
	feed, ok := feedOf(p.member, schema.GroupResource{Group: n.Group, Resource: n.Resource})
	if !ok {
		return nil // no read of the resource is answered here
	}
	e := effect{version: n.Version, unknown: n.Unknown}
	for _, c := range n.Objects {
		e.objects = append(e.objects, change{key: c.Key, uid: c.UID, kind: c.Kind, version: c.Version})
	}
	if !p.received.add(strings.ToLower(n.User), feed, e) {
		return fmt.Errorf("cluster %s: %w", p.member.Name(), ErrTooManyNotes)
	}
	return nil
}

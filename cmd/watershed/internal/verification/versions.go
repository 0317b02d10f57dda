// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package verification

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/admission"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/wire"
)

// question asks another replica about the state of a resource at a version.
type question struct {
	// Cluster is the name of the cluster, and UID its identity.
	Cluster  string `json:"cluster"`
	UID      string `json:"uid"`
	Resource string `json:"resource"`
	Version  uint64 `json:"version"`
	// Hash is the hash of the versions that the asking replica has.
	Hash []byte `json:"hash"`
}

// answer is the answer to a question.
type answer struct {
	// Version is the one of the question, or a lower one that the replica has not gone beyond: the
	// rest of the answer is then empty.
	Version uint64 `json:"version"`
	// Equal means that the hash of the question is right. Else Versions are the versions of all objects.
	Equal    bool   `json:"equal"`
	Versions []byte `json:"versions,omitempty"`
}

// An object takes entrySize bytes in a list of versions: the beginning of a hash of its key and UID, and
// its version. Nobody can guess a UID, so a hash says nothing to a replica that does not have the object.
const hashSize, entrySize = 12, 12 + 8

type objectHash [hashSize]byte

var uidPath = wire.NewPath("metadata.uid")

// hashOf returns the hash of an object's key and UID.
func hashOf(key string, o *wire.Object) objectHash {
	uid, _ := o.Field(uidPath)
	sum := sha256.Sum256([]byte(key + "\x00" + uid))
	return objectHash(sum[:hashSize])
}

// versionsOf returns the versions of objects, in the order of their keys.
func versionsOf(objects iter.Seq2[string, *wire.Object], n int) []byte {
	all := make([]byte, 0, n*entrySize)
	for key, o := range objects {
		hash := hashOf(key, o)
		all = binary.BigEndian.AppendUint64(append(all, hash[:]...), o.Version())
	}
	return all
}

// Answerer answers the questions of other replicas about the versions in the copies of a fleet.
type Answerer struct {
	fleet *fleet.Fleet
	turn  admission.Slots
}

// NewAnswerer returns the answerer of a fleet.
func NewAnswerer(f *fleet.Fleet) *Answerer { return &Answerer{f, make(admission.Slots, 1)} }

// Answer answers a question. Questions are answered one at a time. After each one, the next waits as long
// as the answer took, so they use half of a core at most.
func (a *Answerer) Answer(ctx context.Context, raw []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("question about versions: %w", err)
	}
	m, ok := a.fleet.Member(q.Cluster)
	if !ok || m.Identity().UID != q.UID {
		return nil, fmt.Errorf("the cluster %.100q with the UID %.100q is not mirrored", q.Cluster, q.UID)
	}
	feed, ok := m.Feed(schema.ParseGroupResource(q.Resource))
	if !ok {
		return nil, fmt.Errorf("%.100q of cluster %s is not mirrored", q.Resource, q.Cluster)
	}
	waiting, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	leave, err := a.turn.Enter(waiting)
	if err != nil {
		return nil, fmt.Errorf("%w: other questions about versions", peer.ErrBusy)
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), leave) }()
	now, err := feed.Now()
	if err != nil {
		return nil, err
	}
	is := answer{Version: min(q.Version, now.Version)}
	if is.Version == q.Version {
		past, err := feed.At(q.Version)
		if err != nil {
			return nil, fmt.Errorf("%s of cluster %s at version %d: %w", q.Resource, q.Cluster, q.Version, err)
		}
		is.Versions = versionsOf(past.Range("", ""), past.Len())
		if hash := sha256.Sum256(is.Versions); bytes.Equal(hash[:], q.Hash) {
			is.Equal, is.Versions = true, nil
		}
	}
	return json.Marshal(is)
}

// turnTimeout is how long a question waits for the ones before.
const turnTimeout = 10 * time.Second

// errNoVersion means that two replicas have no state at the same version.
var errNoVersion = errors.New("the two replicas have no state at the same version: try again in a minute")

// compareVersions compares the copy of a pair with that of another replica, at the newest version that both
// have, and adds the result. The function "ask" sends a question to the other replica.
func (p pair) compareVersions(
	ctx context.Context, ask func(context.Context, []byte) ([]byte, error), to *Result,
) error {
	feed, ok := p.member.Feed(p.resource)
	if !ok {
		return fleet.ErrNotMirrored
	}
	now, err := feed.Now()
	if err != nil {
		return err
	}
	q := question{Cluster: p.member.Name(), UID: p.member.Identity().UID, Resource: p.resource.String(),
		Version: now.Version}
	for range 2 { // if the other one is at an older version, the second question is about that version
		past, err := feed.At(q.Version)
		if err != nil {
			return errNoVersion
		}
		hash := sha256.Sum256(versionsOf(past.Range("", ""), past.Len()))
		q.Hash = hash[:]
		raw, err := json.Marshal(q)
		if err == nil {
			raw, err = ask(ctx, raw)
		}
		if err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(raw, &a); err != nil || len(a.Versions)%entrySize != 0 {
			return errors.New("its answer cannot be understood")
		}
		if a.Version == q.Version {
			to.Version, to.Objects = version(q.Version), past.Len()
			if !a.Equal {
				differences(past, a.Versions, to)
			}
			return nil
		}
		q.Version = min(q.Version, a.Version)
	}
	return errNoVersion
}

// maxExamples is how many differences a result lists.
const maxExamples = 20

// differences adds the differences between a state and the versions in that of another replica.
func differences(past *history.Past, versions []byte, to *Result) {
	theirs := make(map[objectHash]uint64, len(versions)/entrySize)
	for i := 0; i < len(versions); i += entrySize {
		theirs[objectHash(versions[i:])] = binary.BigEndian.Uint64(versions[i+hashSize:])
	}
	to.Objects, to.Divergences = len(theirs), map[string]int{}
	add := func(kind, key string, there, here uint64) {
		if to.Divergences[kind]++; len(to.Examples) < maxExamples {
			to.Examples = append(to.Examples, Example{kind, key, version(there), version(here)})
		}
	}
	for key, o := range past.Range("", "") {
		hash, here := hashOf(key, o), o.Version()
		there, ok := theirs[hash]
		delete(theirs, hash)
		switch {
		case !ok:
			add("extra", key, 0, here)
		case there > here:
			add("stale", key, there, here)
		case there < here:
			add("ahead", key, there, here)
		}
	}
	for _, there := range theirs {
		add("missing", "", there, 0)
	}
}

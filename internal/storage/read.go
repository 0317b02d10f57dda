// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"iter"
	"time"
)

// At returns the state that a mirror had at a moment, without [State.Records]. It sees what
// has been written, and can be called at any time, also for a mirror that is not open. The
// error is a [*TooOldError], or a [*Rejection]. Its reason is [Incomplete] if changes are
// missing at the moment, or if a relist found them, so that the state of a version is not
// known exactly. A state that has exactly the version is known even if changes are missing
// after it.
//
// If the server has gone back to older versions, a version selects the newest of the states
// that match, unless that one is missing.
//
// At reads the log from the last complete state before the moment on: for a time up to the
// next state of the mirror, for a version up to its end, and perhaps from twice as far back.
func (c *Cluster) At(id Identity, m Moment) (*State, error) { return c.AtKeys(id, m, nil) }

// AtKeys is At, but the state has only the objects whose keys are wanted. A nil want wants
// all.
func (c *Cluster) AtKeys(id Identity, m Moment, want func(key string) bool) (*State, error) {
	defer c.directory.ledger.hold(c)()
	return c.past.At(id, c.directory.ledger.sinceSetBack(c, m, time.Now()), want)
}

// ObjectAt returns the state that a mirror had at a time, as At does, but only with the object that
// has the key, if it existed.
// With the index of the log it reads only the frames that may concern the object, and at most one
// chunk of a snapshot. A segment without a usable index is read completely. Damage in what is not
// read is not noticed.
func (c *Cluster) ObjectAt(id Identity, at time.Time, key string) (*State, error) {
	defer c.directory.ledger.hold(c)()
	return c.past.ObjectAt(id, c.directory.ledger.sinceSetBack(c, Moment{Time: at}, time.Now()).Time, key)
}

// History yields the stored records of mirrors from a time on, in the order in which they
// arrived, as far as the log reaches. Want selects the mirrors. It can be called at any
// time, and sees the records that have been written. An error means that records are
// missing there; the sequence continues after it. It is a [*GapError] if the mirror was
// not written for a while, or if files with its records were removed.
//
// [Change.Old] is not set, because History does not read complete states. A caller that
// needs it begins with the state that [Cluster.At] returns for the same time.
func (c *Cluster) History(since time.Time, want func(Identity) bool) iter.Seq2[Entry, error] {
	return c.held(c.past.History(since, want))
}

// ObjectHistory yields the records of History that concern one object of a mirror, with only the
// changes of that object. The sequence ends at the first state of the mirror that is later than
// until. A zero until means no end. With the index of the log, only the frames that may concern
// the object are read. Damage elsewhere is not noticed.
func (c *Cluster) ObjectHistory(id Identity, key string, since, until time.Time) iter.Seq2[Entry, error] {
	return c.held(c.past.ObjectHistory(id, key, since, until))
}

// held returns the sequence, and delays the removal of old files while it is read.
func (c *Cluster) held(entries iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		defer c.directory.ledger.hold(c)()
		entries(yield)
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/wire"
)

// Past is an earlier state of a server.
type Past struct {
	Version uint64
	now     state
	// was has the earlier states of the objects that have changed since, nil for those
	// that did not exist. keys are its keys in order.
	was  map[string]*wire.Object
	keys []string
}

// undo undoes the changes of a cursor up to a revision. Changes with the version itself are
// kept if their revisions are not above lastRevision.
func (p *Past) undo(cursor *fanout.Cursor[*wire.Object], lastRevision, to uint64) error {
	p.was = map[string]*wire.Object{}
	for cursor.Position() < to {
		batch, err := cursor.Next(context.Background()) // it does not wait: the changes are in the log
		if err != nil {
			return err
		}
		for i := range batch {
			c := &batch[i]
			kept := c.Version <= p.Version && c.Revision <= lastRevision
			if _, known := p.was[c.Key]; known || kept || c.Revision > to {
				continue
			}
			p.was[c.Key] = c.Old // nil if the object was added
			p.keys = append(p.keys, c.Key)
		}
	}
	slices.Sort(p.keys)
	return nil
}

// Len returns the number of objects.
func (p *Past) Len() int {
	n := p.now.Len()
	for key, was := range p.was {
		_, is := p.now.Get(key)
		switch {
		case is && was == nil:
			n--
		case !is && was != nil:
			n++
		}
	}
	return n
}

// Range yields the objects whose keys begin with prefix, in key order and from the
// first key after a given one.
func (p *Past) Range(prefix, after string) iter.Seq2[string, *wire.Object] {
	return p.merge(p.now.Range(prefix, after), prefix, after)
}

// Candidates is [watershed.Snapshot.Candidates] of the earlier state. It also yields every object that has
// changed since.
func (p *Past) Candidates(
	selector labels.Selector, prefix, after string,
) (objects iter.Seq2[string, *wire.Object], few bool) {
	objects, few = p.now.Candidates(selector, prefix, after)
	if !few || len(p.keys) > p.now.Len()/8 {
		return nil, false
	}
	return p.merge(objects, prefix, after), true
}

// merge yields objects of the current state with the earlier states of those that have
// changed. It merges two sequences in key order: the current objects, and the keys that have
// changed. For a key that both have, the earlier state is yielded, and nothing if there was
// none: with the current objects a, b and d, of which b was added since, and c deleted since, it
// yields a, c and d.
func (p *Past) merge(
	now iter.Seq2[string, *wire.Object], prefix, after string,
) iter.Seq2[string, *wire.Object] {
	if len(p.keys) == 0 {
		return now
	}
	return func(yield func(string, *wire.Object) bool) {
		from, found := slices.BinarySearch(p.keys, max(prefix, after))
		if found && after != "" && p.keys[from] == after {
			from++
		}
		keys := p.keys[from:]
		// emit yields the earlier states of the keys before one.
		emit := func(before string, all bool) bool {
			for len(keys) > 0 && (all || keys[0] < before) {
				key := keys[0]
				keys = keys[1:]
				if o := p.was[key]; o != nil && strings.HasPrefix(key, prefix) && !yield(key, o) {
					return false
				}
			}
			return true
		}
		for key, o := range now {
			if !emit(key, false) {
				return
			}
			if len(keys) > 0 && keys[0] == key {
				keys = keys[1:]
				if o = p.was[key]; o == nil {
					continue
				}
			}
			if !yield(key, o) {
				return
			}
		}
		emit("", true)
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import "iter"

// queue keeps deltas in arrival order and also chains them by key, so that it can be
// emptied either way. It is not safe for concurrent use.
//
// A delta costs its own size, 8 bytes of links and a share of its key's map entry.
// Nothing is allocated per delta once the slices have grown.
type queue[T any] struct {
	// deltas and links are parallel slices. A zero Type is a hole, left by take.
	deltas Deltas[T]
	links  []link
	chains map[string]chain
	// head is the first position that may not be a hole.
	head int
	live int
	// bookmarks is how many of the live deltas are bookmarks.
	bookmarks int
	// size returns the bytes of an object. bytes is their sum for the live deltas. It is
	// an estimate if the size of an object changes while it is queued.
	size  func(T) int
	bytes int
}

type link struct {
	// next is the position of the key's next delta, -1 at the end.
	next int32
	// initial marks a delta of the first complete list.
	initial bool
}

type chain struct{ first, last int32 }

func newQueue[T any](size func(T) int) *queue[T] {
	return &queue[T]{size: size}
}

func (q *queue[T]) has(key string) bool {
	_, ok := q.chains[key]
	return ok
}

func (q *queue[T]) newest(key string) (Delta[T], bool) {
	c, ok := q.chains[key]
	if !ok {
		return Delta[T]{}, false
	}
	return q.deltas[c.last], true
}

// put appends d and reports whether the queue grew. A deletion right after a deletion of
// the same key is merged with it: the new one replaces a Missed one and is dropped
// otherwise.
func (q *queue[T]) put(d Delta[T], initial bool) bool {
	if d.Type == Bookmark {
		return q.putBookmark(d, initial)
	}
	c, chained := q.chains[d.Key]
	if chained && d.Type == Deleted && q.deltas[c.last].Type == Deleted {
		if last := &q.deltas[c.last]; last.Missed {
			d.Listed = d.Listed || last.Listed
			*last = d
		}
		return false
	}
	if len(q.deltas) == cap(q.deltas) && q.live <= len(q.deltas)/2 {
		q.compact()
		c = q.chains[d.Key]
	}
	at := int32(len(q.deltas))
	q.deltas = append(q.deltas, d)
	q.links = append(q.links, link{next: -1, initial: initial})
	if chained {
		q.links[c.last].next = at
		c.last = at
	} else {
		c = chain{first: at, last: at}
	}
	if q.chains == nil {
		q.chains = make(map[string]chain)
	}
	q.chains[d.Key] = c
	q.live++
	q.bytes += q.size(d.Object)
	return true
}

// putBookmark appends d and reports whether the queue grew. A bookmark right after
// another replaces it, because the later version supersedes the earlier one. An initial
// one does not.
func (q *queue[T]) putBookmark(d Delta[T], initial bool) bool {
	if n := len(q.deltas); n > 0 && q.deltas[n-1].Type == Bookmark && !initial {
		d.Missed = d.Missed || q.deltas[n-1].Missed
		if !d.Listed { // otherwise the newer list counts
			d.Listed, d.Vague = q.deltas[n-1].Listed, q.deltas[n-1].Vague
		}
		q.deltas[n-1] = d
		return false
	}
	q.deltas = append(q.deltas, d)
	q.links = append(q.links, link{next: -1, initial: initial})
	q.live++
	q.bookmarks++
	return true
}

// dropBookmarks removes the bookmarks before the oldest object and reports how
// many of them were initial.
func (q *queue[T]) dropBookmarks() int {
	initial := 0
	for q.live > 0 {
		switch q.deltas[q.head].Type {
		case 0:
		case Bookmark:
			if q.links[q.head].initial {
				initial++
			}
			q.deltas[q.head] = Delta[T]{}
			q.live--
			q.bookmarks--
		default:
			return initial
		}
		q.head++
	}
	q.reset()
	return initial
}

// take moves the deltas of the oldest key to the end of to. The oldest delta must
// not be a bookmark.
func (q *queue[T]) take(to *queue[T]) {
	for q.deltas[q.head].Type == 0 {
		q.head++
	}
	key := q.deltas[q.head].Key
	for at := q.chains[key].first; at >= 0; at = q.links[at].next {
		to.put(q.deltas[at], q.links[at].initial)
		q.bytes = max(q.bytes-q.size(q.deltas[at].Object), 0)
		q.deltas[at] = Delta[T]{}
		q.live--
	}
	delete(q.chains, key)
	if q.live == 0 {
		q.reset()
	}
}

// compact closes the holes.
func (q *queue[T]) compact() {
	if q.live == len(q.deltas) {
		return
	}
	clear(q.chains)
	old, links := q.deltas, q.links
	q.deltas, q.links, q.head, q.live, q.bookmarks, q.bytes = q.deltas[:0], q.links[:0], 0, 0, 0, 0
	for at, d := range old {
		if d.Type != 0 {
			q.put(d, links[at].initial)
		}
	}
	clear(old[len(q.deltas):])
}

// reset empties the queue and releases the objects. It keeps the allocated capacity.
func (q *queue[T]) reset() {
	// Clearing a map costs time in proportion to its largest size ever. A few keys are
	// cheaper to delete one by one.
	if len(q.deltas) < 64 {
		for at := range q.deltas {
			delete(q.chains, q.deltas[at].Key)
		}
	} else {
		clear(q.chains)
	}
	clear(q.deltas)
	q.deltas, q.links, q.head, q.live, q.bookmarks, q.bytes = q.deltas[:0], q.links[:0], 0, 0, 0, 0
}

// deltasByKey yields each key with its newest delta, oldest key first.
func (q *queue[T]) deltasByKey() iter.Seq2[string, Delta[T]] {
	return func(yield func(string, Delta[T]) bool) {
		for at := q.head; at < len(q.deltas); at++ {
			d := &q.deltas[at]
			if d.Type == 0 || d.Type == Bookmark {
				continue
			}
			if c := q.chains[d.Key]; c.first == int32(at) && !yield(d.Key, q.deltas[c.last]) {
				return
			}
		}
	}
}

// of returns a copy of the deltas of one key.
func (q *queue[T]) of(key string) Deltas[T] {
	c, ok := q.chains[key]
	if !ok {
		return nil
	}
	var ds Deltas[T]
	for at := c.first; at >= 0; at = q.links[at].next {
		ds = append(ds, q.deltas[at])
	}
	return ds
}

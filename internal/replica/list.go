// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// itemFrame is the event of frames that are items of lists.
const itemFrame = wire.EventType(255)

// listing is what a list has: a state, and where in it to begin and to end.
type listing struct {
	// parts are the objects, each cluster's on its own.
	parts []listPart
	meta  metav1.ListMeta
	// kind is that of the objects.
	kind    schema.GroupVersionKind
	matcher *matcher
	// clusters says that the list is the fleet's.
	clusters bool
}

// listPart are objects of one cluster in key order.
type listPart struct {
	shelf   shelf
	form    form
	objects iter.Seq2[string, *wire.Object]
}

// past is a state that lists read.
type past interface {
	Range(prefix, after string) iter.Seq2[string, *wire.Object]
	Len() int
}

// list answers with the objects that a client wants.
func (q *request) list(opts *internalversion.ListOptions) error {
	m, err := newMatcher(q.server, opts, q.target, q.known.fields)
	if err != nil {
		return err
	}
	state, at, from, err := q.state(opts)
	if err != nil {
		return err
	}
	prefix := ""
	if q.namespace != "" {
		prefix = q.namespace + "/"
	}
	after := ""
	if from.Start != "" {
		after = prefix + from.after()
	}
	objects := state.Range(prefix, after)
	if name, ok := m.name(); ok && after == "" && (q.namespace != "" || !q.namespaced) {
		objects = only(state, prefix+name)
	}
	l := &listing{kind: q.kind, matcher: m, meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}}
	if limit := opts.Limit; limit > 0 && (opts.ResourceVersion != "0" || opts.Continue != "") {
		last, more := m.cut(objects, int(limit))
		if m.err != nil {
			return m.err
		}
		if more {
			next := token{Version: int64(at), Start: last[len(prefix):] + "\x00", Left: from.Left - int(limit)}
			if m.all() && from.Left == 0 {
				next.Left = count(state, prefix, last)
			}
			if m.all() {
				left := int64(next.Left)
				l.meta.RemainingItemCount = &left
			}
			l.meta.Continue = next.String()
			objects = until(objects, last)
		}
	}
	l.parts = []listPart{{shelf: shelf{q.cluster.member.Name(), q.GroupVersionResource}, form: q.form(""), objects: objects}}
	return q.writeList(l)
}

// only is one object, if it is there.
func only(state past, key string) iter.Seq2[string, *wire.Object] {
	return func(yield func(string, *wire.Object) bool) {
		for found, o := range state.Range(key, "") {
			if found == key {
				yield(found, o)
			}
			return
		}
	}
}

// count is how many objects there are after a key.
func count(state past, prefix, after string) int {
	n := 0
	for range state.Range(prefix, after) {
		n++
	}
	return n
}

// state is what to list: the newest state there is, one that is not older than a
// version, the one of a version, or the one of a token.
func (q *request) state(opts *internalversion.ListOptions) (s past, at uint64, from token, err error) {
	if opts.Continue != "" {
		if from, err = tokenOf(opts, ""); err != nil {
			return nil, 0, from, err
		}
		if from.Version > 0 {
			s, err = q.exact(uint64(from.Version), token{Version: -1, Start: from.Start}.String())
			return s, uint64(from.Version), from, err
		}
		from.Left = 0
	}
	v, err := listVersion(opts.ResourceVersion)
	if err != nil {
		return nil, 0, from, err
	}
	if v > 0 && (opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0) {
		s, err = q.exact(v, "")
		return s, v, from, err
	}
	now, err := q.at(v)
	if err != nil {
		return nil, 0, from, err
	}
	return now.State, now.Version, from, nil
}

// What is said of versions that are too old, as the API server says it.
const (
	versionExpired  = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// exact is the state at a version, or what to say instead.
func (q *request) exact(v uint64, token string) (past, error) {
	s, err := q.feed.At(v)
	switch {
	case errors.Is(err, fleet.ErrNotReady):
		return nil, notReady()
	case errors.Is(err, fleet.ErrFuture):
		if _, err := q.at(v); err != nil {
			return nil, err
		}
		return q.exact(v, token) // it is the past by now
	case err != nil && token != "":
		return nil, expired(continueExpired, token)
	case err != nil:
		return nil, expired(versionExpired, "")
	}
	return s, nil
}

// cut is the key of the last of so many objects that match, and whether there are more
// that do.
func (m *matcher) cut(objects iter.Seq2[string, *wire.Object], limit int) (last string, more bool) {
	n := 0
	for key, o := range objects {
		if !m.all() && !m.matches(o) {
			continue
		}
		if n == limit {
			return last, true
		}
		n++
		last = key
	}
	return last, false
}

// until ends with a key.
func until(objects iter.Seq2[string, *wire.Object], last string) iter.Seq2[string, *wire.Object] {
	return func(yield func(string, *wire.Object) bool) {
		for key, o := range objects {
			if !yield(key, o) || key == last {
				return
			}
		}
	}
}

// writeList answers with a list in the form that the client wants.
func (q *request) writeList(l *listing) error {
	switch {
	case q.media.shape == partial && !q.media.listed:
		return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)", q.goType("List")))
	case q.media.shape == table:
		return q.writeTable(l, q.known.printer)
	case q.media.encoding == asProtobuf:
		return q.writeProtoList(l)
	case q.media.encoding == asYAML:
		return q.writeYAMLList(l)
	case q.media.pretty:
		return q.writePrettyList(l)
	}
	b := q.begin(mediaTypes[asJSON])
	return b.finish(func() error {
		if err := b.add(part{raw: q.listHead(l)}); err != nil {
			return err
		}
		first, none := true, "[]"
		if q.media.shape == partial {
			none = "null" // as the API server writes no metadata
		}
		for p, err := range l.items(q.server, false) {
			if err != nil {
				return err
			}
			separator := comma
			if first {
				separator = []byte("[")
			}
			if err := b.add(part{raw: separator}); err != nil {
				return err
			}
			first = false
			if err := b.add(p); err != nil {
				return err
			}
		}
		if first {
			return b.add(part{raw: []byte(none + "}\n")})
		}
		return b.add(part{raw: []byte("]}\n")})
	})
}

var comma = []byte(",")

// listKind is what the list says it is.
func (q *request) listKind(l *listing) schema.GroupVersionKind {
	if q.media.shape == partial {
		return partialKind(q.media.version, "List")
	}
	return l.kind.GroupVersion().WithKind(l.kind.Kind + "List")
}

// listHead is a list in JSON up to its items.
func (q *request) listHead(l *listing) []byte {
	kind := q.listKind(l)
	meta, err := json.Marshal(&l.meta)
	if err != nil {
		meta = []byte("{}") // strings and numbers can be written
	}
	head := append([]byte(typePrefix(kind)), `"metadata":`...)
	return append(append(head, meta...), `,"items":`...)
}

// items yields the parts of a list: blocks, and single objects where few of a block
// are wanted. Between the parts there are commas to be written if they are JSON. No part
// is empty. It ends with the first error.
func (l *listing) items(s *Server, events bool) iter.Seq2[part, error] {
	return func(yield func(part, error) bool) {
		for _, p := range l.parts {
			if !l.part(s, &p, events, yield) {
				return
			}
		}
	}
}

// part yields the parts of one cluster, and reports whether to go on.
func (l *listing) part(s *Server, p *listPart, events bool, yield func(part, error) bool) bool {
	f := blockForm{form: p.form, events: events}
	for run := range runs(p.objects) {
		some, all := l.matcher.some(run)
		switch {
		case l.matcher.err != nil:
			yield(part{}, l.matcher.err)
			return false
		case !all && len(some) == 0:
			continue
		case all || len(some)*few >= len(run):
			if piece, err := s.blocks.part(p.shelf, run, f, some); !yield(piece, err) || err != nil {
				return false
			}
			continue
		}
		for _, i := range some {
			key := frameKey{object: run[i], form: p.form, event: itemFrame}
			if events {
				key.event = wire.Added
			}
			if raw, err := s.frames.get(key); !yield(part{raw: raw}, err) || err != nil {
				return false
			}
		}
	}
	return true
}

// few of a run are not worth making the block: one in so many, or less.
const few = 6

// some returns those of a run that match, nil if all do.
func (m *matcher) some(run []*wire.Object) (some []int, all bool) {
	if m.all() {
		return nil, true
	}
	for i, o := range run {
		if m.matches(o) {
			some = append(some, i)
		}
	}
	if len(some) == len(run) {
		return nil, true
	}
	return some, false
}

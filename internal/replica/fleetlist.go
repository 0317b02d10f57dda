// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// getAll answers with one object, if one cluster has it.
func (q *request) getAll(query url.Values) error {
	if err := q.ofCopy(); err != nil {
		return err
	}
	v, err := getVersion(query)
	if err != nil {
		return err
	}
	now, err := q.notOlder(v)
	if err != nil {
		return err
	}
	var found *wire.Object
	var in []string
	for cluster, state := range now.States() {
		if o, ok := state.Get(q.key()); ok {
			found, in = o, append(in, cluster)
		}
	}
	switch len(in) {
	case 0:
		if unread := q.unread(); len(unread) > 0 {
			return unreachable(unread, fmt.Sprintf("%s %q may be in a cluster that was not read yet", q.GroupResource(), q.name))
		}
		return apierrors.NewNotFound(q.GroupResource(), q.name)
	case 1:
	default:
		return failure(http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("%s %q is in several clusters, read it from one of them: %s", q.GroupResource(), q.name, listed(in)))
	}
	return q.writeOne(found, in[0])
}

// ofCopy refuses reads that are to be passed on: of all clusters together there is
// nobody to ask.
func (q *request) ofCopy() error {
	if wantsOrigin(q.r) {
		return apierrors.NewBadRequest("a consistent read is one of a single cluster, below /clusters/NAME: what all of them have is read from the copy")
	}
	return nil
}

// unread are clusters of which nobody can say yet whether they have an object.
func (q *request) unread() []*fleet.Member {
	var all []*fleet.Member
	for _, m := range q.server.fleet.Members() {
		feed, ok := m.Feed(q.GroupResource())
		if ok {
			_, err := feed.Now()
			ok = err == nil
		} else {
			ok = m.Discovered()
		}
		if !ok {
			all = append(all, m)
		}
	}
	return all
}

// listAll answers with the objects of all clusters.
func (q *request) listAll(opts *internalversion.ListOptions) error {
	if err := q.ofCopy(); err != nil {
		return err
	}
	m, err := newMatcher(q.server, opts, q.target, q.known.fields)
	if err != nil {
		return err
	}
	state, from, err := q.stateOfAll(opts)
	if err != nil {
		return err
	}
	at := state.Revision()
	l := &listing{kind: q.kind, matcher: m, clusters: true, meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}}
	l.parts = q.allParts(state, from)
	if limit := int(opts.Limit); limit > 0 && (opts.ResourceVersion != "0" || opts.Continue != "") {
		last, more := l.cutAll(limit)
		if m.err != nil {
			return m.err
		}
		if more {
			next := token{Version: int64(at), Start: last + "\x00", Of: q.listOfAll()}
			if m.all() {
				if next.Left = from.Left - limit; next.Left <= 0 {
					next.Left = countAll(q.allParts(state, next))
				}
				left := int64(next.Left)
				l.meta.RemainingItemCount = &left
			}
			l.meta.Continue = next.String()
			q.all.everything.pins.keep(q.GroupVersionResource, state)
		}
	}
	return q.writeList(l)
}

// listOfAll is what tokens say that they are of.
func (q *request) listOfAll() string { return q.namespace + "/" + q.GroupResource().String() }

// allParts are the objects of each cluster, after where a token says.
func (q *request) allParts(state fleet.Snapshot[*wire.Object], from token) []listPart {
	cluster, after, _ := strings.Cut(from.after(), "/")
	prefix := ""
	if q.namespace != "" {
		prefix = q.namespace + "/"
	}
	var parts []listPart
	for name, s := range state.States() {
		p := listPart{shelf: shelf{name, q.GroupVersionResource}, form: q.form(name)}
		switch {
		case name < cluster, !q.all.selects(name):
			continue
		case name == cluster:
			p.objects = s.Range(prefix, after)
		default:
			p.objects = s.Range(prefix, "")
		}
		parts = append(parts, p)
	}
	return parts
}

func countAll(parts []listPart) int {
	n := 0
	for _, p := range parts {
		for range p.objects {
			n++
		}
	}
	return n
}

// cutAll leaves so many objects that match, and returns where the last is and whether
// there are more.
func (l *listing) cutAll(limit int) (last string, more bool) {
	for i := range l.parts {
		p := &l.parts[i]
		n, end := 0, ""
		for key, o := range p.objects {
			if !l.matcher.all() && !l.matcher.matches(o) {
				continue
			}
			if n == limit {
				more = true
				break
			}
			n++
			end = key
		}
		if end != "" {
			last = p.shelf.cluster + "/" + end
		}
		if more {
			if p.objects = until(p.objects, end); end == "" {
				p.objects = nothing
			}
			l.parts = l.parts[:i+1]
			return last, true
		}
		limit -= n
	}
	return last, false
}

// nothing is no objects.
var nothing iter.Seq2[string, *wire.Object] = func(func(string, *wire.Object) bool) {}

// stateOfAll is what to list: the newest state, one that is not older than a version,
// or the one of a token.
func (q *request) stateOfAll(opts *internalversion.ListOptions) (fleet.Snapshot[*wire.Object], token, error) {
	var none fleet.Snapshot[*wire.Object]
	var from token
	var err error
	if opts.Continue != "" {
		if from, err = tokenOf(opts, q.listOfAll()); err != nil {
			return none, from, err
		}
		if from.Version < 0 {
			from.Left = 0
			s, err := q.notOlder(0)
			return s, from, err
		}
		s, ok := q.all.everything.pins.find(q.GroupVersionResource, uint64(from.Version))
		if err := q.all.view.Recognize(uint64(from.Version)); err != nil || !ok {
			return none, from, expired(continueExpired, token{Version: -1, Start: from.Start, Of: from.Of}.String())
		}
		return s, from, nil
	}
	v, err := listVersion(opts.ResourceVersion)
	if err != nil {
		return none, from, err
	}
	s, err := q.notOlder(v)
	if err == nil && s.Revision() != v && v > 0 && (opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0) {
		var ok bool
		if s, ok = q.all.everything.pins.find(q.GroupVersionResource, v); !ok {
			return none, from, expired(versionExpired, "")
		}
	}
	return s, from, err
}

// notOlder returns a state that is not older than a revision of the fleet, 0 for any. A
// revision that another process has issued cannot be compared with ours, so it expires.
// While no cluster that is selected has been read there is no state: an empty list would
// be wrong, unless the selector leaves none to read.
func (q *request) notOlder(v uint64) (fleet.Snapshot[*wire.Object], error) {
	s := q.all.view.Snapshot()
	for name := range s.Clusters() {
		if !q.all.selects(name) && len(q.all.members) > 0 {
			continue
		}
		if v == 0 {
			return s, nil
		}
		if err := q.all.view.Recognize(v); err != nil {
			return s, expired(versionExpired, "")
		}
		return q.all.view.Snapshot(), nil
	}
	return s, notReady()
}

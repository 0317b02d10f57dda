// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"iter"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/wire"
)

// Page is a list, or a page of one.
type Page struct {
	// Meta has the version, and for a page the continue token.
	Meta metav1.ListMeta
	// Runs are the objects, cluster by cluster, before the matcher.
	Runs []Run
	// Matcher selects the objects of the page.
	Matcher *Matcher
}

// Run is objects of one cluster, in the order of their keys.
type Run struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Objects are the objects by key.
	Objects iter.Seq2[string, *wire.Object]
	// Few means that Objects has only the few objects that can match, and not their
	// neighbours.
	Few bool
}

// List reads a list, or the page of it that the options select. The seal binds its continue
// token.
func List(ctx context.Context, v View, opts *internalversion.ListOptions, m *Matcher, seal Seal) (*Page, error) {
	from, s, err := stateOf(ctx, v, opts, m, seal)
	if err != nil {
		return nil, err
	}
	p := &Page{Matcher: m}
	if !s.unversioned {
		if err := v.issue(s.Version); err != nil {
			return nil, err
		}
		p.Meta.ResourceVersion = strconv.FormatUint(s.Version, 10)
	}
	prefix := ObjectKey(m.namespace, "")
	p.Runs = s.runs(v, m, prefix, from.Start)
	if key, ok := m.key(); ok && from.Start == "" {
		p.Runs = s.only(key)
	}
	limit := int(opts.Limit)
	if limit <= 0 || opts.ResourceVersion == "0" && opts.Continue == "" {
		return p, nil
	}
	cluster, last, more := p.cut(limit)
	if m.err != nil || !more {
		return p, m.err
	}
	next := token{Version: int64(s.Version), Start: v.start(cluster, last, prefix), Of: v.list(m.namespace)}
	if m.All() {
		next.Left = from.Left - limit
		if next.Left <= 0 {
			next.Left = count(s.runs(v, m, prefix, next.Start))
		}
		left := int64(next.Left)
		p.Meta.RemainingItemCount = &left
	}
	p.Meta.Continue = next.text(seal)
	v.Keep(s)
	return p, nil
}

// Initial returns the objects of a state as the initial events of a watch.
func Initial(v View, s *State, m *Matcher) *Page {
	return &Page{Matcher: m, Runs: s.runs(v, m, ObjectKey(m.namespace, ""), "")}
}

// stateOf returns the state to list: the newest one, one that is not older than a version,
// the one at a version, or the one of a continue token.
func stateOf(
	ctx context.Context, v View, opts *internalversion.ListOptions, m *Matcher, seal Seal,
) (from token, s *State, err error) {
	if opts.Continue != "" {
		if from, err = tokenOf(opts, v.list(m.namespace), seal); err != nil {
			return from, nil, err
		}
		if from.Version > 0 {
			s, err = v.Exact(ctx, uint64(from.Version))
			if apierrors.IsResourceExpired(err) {
				err = status.Expired(status.ContinueExpired,
					token{Version: -1, Start: from.Start, Of: from.Of}.text(seal))
			}
			return from, s, err
		}
		from.Left = 0
	}
	version, err := listVersion(opts.ResourceVersion)
	if err != nil {
		return from, nil, err
	}
	if version > 0 && (opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		opts.ResourceVersionMatch == "" && opts.Limit > 0) {
		s, err = v.Exact(ctx, version)
	} else {
		s, err = v.NotOlder(ctx, version)
	}
	return from, s, err
}

// runs returns the objects of a state after the start of a continue token.
func (s *State) runs(v View, m *Matcher, prefix, start string) []Run {
	from, key := "", ""
	if start != "" {
		from, key = v.after(start, prefix)
	}
	var all []Run
	for _, p := range s.Parts {
		switch {
		case p.Cluster < from:
		case p.Cluster == from:
			all = append(all, p.run(m, prefix, key))
		default:
			all = append(all, p.run(m, prefix, ""))
		}
	}
	return all
}

// run returns the objects of a cluster after a key.
func (p *Part) run(m *Matcher, prefix, after string) Run {
	if m.labels != nil {
		if objects, few := p.objects.Candidates(m.labels, prefix, after); few {
			return Run{Cluster: p.Cluster, Objects: objects, Few: true}
		}
	}
	return Run{Cluster: p.Cluster, Objects: p.objects.Range(prefix, after)}
}

// only returns the objects with a key.
func (s *State) only(key string) []Run {
	var all []Run
	for _, p := range s.Parts {
		all = append(all, Run{Cluster: p.Cluster, Few: true, Objects: func(yield func(string, *wire.Object) bool) {
			if o := p.get(key); o != nil {
				yield(key, o)
			}
		}})
	}
	return all
}

// count returns how many objects runs have.
func count(runs []Run) int {
	n := 0
	for _, r := range runs {
		for range r.Objects {
			n++
		}
	}
	return n
}

// cut leaves limit objects that match. It returns where the last one is, and whether there
// are more.
func (p *Page) cut(limit int) (cluster, last string, more bool) {
	for i := range p.Runs {
		r := &p.Runs[i]
		n, end := 0, ""
		for key, o := range r.Objects {
			if !p.Matcher.Matches(o) {
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
			cluster, last = r.Cluster, end
		}
		if more {
			r.Objects = until(r.Objects, end)
			p.Runs = p.Runs[:i+1]
			return cluster, last, true
		}
		limit -= n
	}
	return cluster, last, false
}

// until yields objects up to a key, and none if the key is "".
func until(objects iter.Seq2[string, *wire.Object], last string) iter.Seq2[string, *wire.Object] {
	return func(yield func(string, *wire.Object) bool) {
		if last == "" {
			return
		}
		for key, o := range objects {
			if !yield(key, o) || key == last {
				return
			}
		}
	}
}

// Objects yields the objects of the page that match, with the run of each. If it is not
// known whether an object matches, because it cannot be decoded, it is the last one, and
// [Matcher.Err] returns the error.
func (p *Page) Objects() iter.Seq2[*Run, *wire.Object] {
	return func(yield func(*Run, *wire.Object) bool) {
		for i := range p.Runs {
			for _, o := range p.Runs[i].Objects {
				if !p.Matcher.Matches(o) && p.Matcher.err == nil {
					continue
				}
				if !yield(&p.Runs[i], o) || p.Matcher.err != nil {
					return
				}
			}
		}
	}
}

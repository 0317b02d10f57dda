// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"errors"
	"iter"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/wire"
)

// visibility decides what the caller of a request may read of the past of a member.
type visibility struct {
	q      *Request
	member *fleet.Member
}

// allow returns an error if the request may not read a time in the past.
// Rights are those of now. The namespace of the request may have been deleted and created
// again since, for others: then its past needs the right for all namespaces.
func (p *visibility) allow(at time.Time) error {
	namespace := p.q.AllowedNamespace
	if p.q.Rights == nil || namespace == "" || p.existed(namespace, at) {
		return nil
	}
	return p.q.Rights.AllNamespaces()
}

// seesAll returns a function that reports whether the caller may read all namespaces. It asks once.
func (p *visibility) seesAll() func() bool {
	return sync.OnceValue(func() bool { return p.q.Rights.AllNamespaces() == nil })
}

// existed reports whether a namespace is the same as at a time. It is false if that is not
// known.
func (p *visibility) existed(namespace string, at time.Time) bool {
	created, ok := p.created(namespace)
	return ok && !at.Before(created.Add(time.Second))
}

// created returns when a namespace was created, in whole seconds as Kubernetes records it. It
// returns false if the namespace does not exist, or if the copy of the namespaces is not current:
// that copy may still have an older namespace of the same name.
func (p *visibility) created(namespace string) (time.Time, bool) {
	feed, ok := p.member.Feed(schema.GroupResource{Resource: "namespaces"})
	if !ok || !freshness.IsCurrent(feed.Connection()) {
		return time.Time{}, false
	}
	now, err := feed.Now()
	if err != nil {
		return time.Time{}, false
	}
	o, ok := now.State.Get(namespace)
	if !ok {
		return time.Time{}, false
	}
	return o.Created(), true
}

// errNewNamespace returns the 403 for the past of a namespace that was created later, or whose time
// of creation is not known.
func errNewNamespace(namespace string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, namespace,
		errors.New("the namespace may have been deleted and created again since that time, "+
			"and you may not read all namespaces"))
}

// isFormer returns a function that reports whether an object is from an earlier namespace of the
// same name. A copy that was not current for a while has such objects also after the namespace was
// created again. It returns nil if the caller may read them: seesAll reports whether the caller
// may read all namespaces, and is called if that matters.
func (p *visibility) isFormer(seesAll func() bool) func(*wire.Object) bool {
	namespace := p.q.AllowedNamespace
	if p.q.Rights == nil || namespace == "" {
		return nil
	}
	created, known := p.created(namespace)
	return func(o *wire.Object) bool { return o != nil && (!known || o.Created().Before(created)) && !seesAll() }
}

// checkObjects returns an error if a state has objects of an earlier namespace of the same name,
// and the caller may not read all namespaces.
func (p *visibility) checkObjects(past *history.Archived, seesAll func() bool) error {
	former := p.isFormer(seesAll)
	if former == nil {
		return nil
	}
	namespace := p.q.AllowedNamespace
	for _, prefix := range []string{namespace, namespace + "/"} { // the namespace itself, or its objects
		for key, o := range past.Range(prefix, "") {
			if (key == namespace || prefix != namespace) && former(o) {
				return errNewNamespace(namespace)
			}
		}
	}
	return nil
}

// visibleSince returns the time since which the caller may read changes: the creation of the
// namespace if that is later, unless the caller may read all namespaces.
func (p *visibility) visibleSince(since time.Time) (time.Time, error) {
	err := p.allow(since)
	if err == nil {
		return since, nil
	}
	if created, ok := p.created(p.q.AllowedNamespace); ok {
		return created.Add(time.Second), nil
	}
	return since, err
}

// withoutFormer yields changes without the states that [visibility.isFormer] reports.
func (p *visibility) withoutFormer(
	changes iter.Seq2[history.PastChange, error], seesAll func() bool,
) iter.Seq2[history.PastChange, error] {
	former := p.isFormer(seesAll)
	if former == nil {
		return changes
	}
	return func(yield func(history.PastChange, error) bool) {
		for change, err := range changes {
			if former(change.Object) {
				continue
			}
			if former(change.Old) {
				change.Old = nil
			}
			if !yield(change, err) {
				return
			}
		}
	}
}

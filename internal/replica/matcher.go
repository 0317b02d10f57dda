// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"cmp"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	selectable "github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/wire"
)

// matcher says which objects a client wants.
type matcher struct {
	server *Server
	// namespace, if it is not "", is where they are. Lists have it in the prefix too.
	namespace string
	labels    labels.Selector // nil: all
	fields    fields.Selector // nil: all
	set       *selectable.Set
	// plain says that the fields are in the metadata.
	plain bool
	// err is set when an object could not be decoded, so that it is not known whether it
	// matches. The response must fail.
	err error
	// scans are checks of other fields that need no decoding. Exact says that an object
	// which passes them all is selected, narrow that few objects do.
	scans         []fieldScan
	exact, narrow bool
}

// fieldScan is a requirement that can be checked in the bytes of an object.
type fieldScan struct {
	path     *wire.Path
	equality selectable.Equality
}

// newMatcher reads the selectors of a request.
func newMatcher(s *Server, opts *internalversion.ListOptions, t target, set *selectable.Set) (*matcher, error) {
	m := &matcher{server: s, namespace: t.namespace, set: set}
	if opts.LabelSelector != nil && !opts.LabelSelector.Empty() {
		m.labels = opts.LabelSelector
	}
	if opts.FieldSelector != nil && !opts.FieldSelector.Empty() {
		var err error
		if m.fields, err = set.Parse(opts.FieldSelector.String()); err != nil {
			return nil, err
		}
	}
	if t.name != "" {
		if m.fields != nil {
			if name, ok := m.fields.RequiresExactMatch("metadata.name"); !ok || name != t.name {
				return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
			}
		} else {
			m.fields = fields.OneTermEqualSelector("metadata.name", t.name)
		}
	}
	m.plain = m.fields != nil && selectable.OnlyMetadata(m.fields)
	if m.fields != nil && !m.plain {
		equalities := set.Equalities(m.fields)
		m.exact = len(equalities) == len(m.fields.Requirements())
		m.narrow = m.exact
		for _, e := range equalities {
			m.scans = append(m.scans, fieldScan{wire.NewPath(e.Path), e})
			m.exact, m.narrow = m.exact && e.Exact(), m.narrow && e.Exact() && !e.Wide
		}
	}
	return m, nil
}

// all reports whether there is no selector.
func (m *matcher) all() bool { return m.labels == nil && m.fields == nil }

// matches reports whether an object is wanted. An object is decoded only for fields
// outside the metadata, and only if its bytes do not decide. If that fails it sets m.err,
// which the caller has to check.
func (m *matcher) matches(o *wire.Object) bool { return m.selects(o, true) }

// selects is matches. For the states of a change, at which many watchers may look, a scan
// by each of them can cost more than the decoded value, which they share: scan says to
// scan in any case, and not only if few objects are selected.
func (m *matcher) selects(o *wire.Object, scan bool) bool {
	if m.namespace != "" && o.Namespace() != m.namespace {
		return false
	}
	if m.labels != nil && !m.labels.Matches(o.Labels()) {
		return false
	}
	switch {
	case m.fields == nil:
		return true
	case m.plain:
		return m.fields.Matches(fields.Set{"metadata.name": o.Name(), "metadata.namespace": o.Namespace()})
	}
	if scan || m.narrow {
		if selected, decided := m.scan(o); decided {
			return selected
		}
	}
	value, err := m.server.values.Decode(o)
	if err != nil {
		m.err = &unsentError{o, err}
		return false
	}
	return m.fields.Matches(m.set.Of(value))
}

// scan checks the fields in the bytes of an object, and reports whether that decides.
func (m *matcher) scan(o *wire.Object) (selected, decided bool) {
	for _, s := range m.scans {
		value, ok := o.Field(s.path)
		if !ok {
			return false, false
		}
		if !s.equality.Allows(value) {
			return false, true
		}
	}
	return true, m.exact
}

// name is the one name that can match, if there is one.
func (m *matcher) name() (string, bool) {
	if m.fields == nil {
		return "", false
	}
	return m.fields.RequiresExactMatch("metadata.name")
}

// interest returns which changes can concern the matcher: those of the requirement that
// is likely to select the fewest objects. The matcher checks the others. In this order:
// a name, a field that has many different values, a label, the namespace, any other
// field. Only a value that is required counts; "!=" selects nearly everything.
func (m *matcher) interest(namespaced bool) fanout.Interest {
	namespace := m.namespace
	var narrow, wide *selectable.Equality
	name, named := m.name()
	if m.fields != nil {
		for _, e := range m.set.Equalities(m.fields) {
			switch {
			case e.Path == "metadata.name":
			case e.Path == "metadata.namespace":
				namespace = cmp.Or(namespace, e.Value)
			case e.Wide:
				wide = &e
			default:
				narrow = &e
			}
		}
	}
	label, labelled := "", false
	if m.labels != nil {
		if requirements, selectable := m.labels.Requirements(); selectable {
			label, labelled = narrowest(requirements)
		}
	}
	switch {
	case named && !namespaced:
		return fanout.Key(name)
	case named && namespace != "":
		return fanout.Key(namespace + "/" + name)
	case named:
		return fleet.HasField("metadata.name", name)
	case narrow != nil:
		return fleet.HasField(narrow.Path, narrow.Value)
	case labelled:
		return fanout.In(fleet.ByLabel, label)
	case namespace != "":
		return fanout.Namespace(namespace)
	case wide != nil:
		return fleet.HasField(wide.Path, wide.Value)
	}
	return fanout.Everything()
}

// narrowest is a label that all objects have that the requirements match: with its
// value if that is known.
func narrowest(requirements labels.Requirements) (string, bool) {
	label := ""
	for _, r := range requirements {
		switch r.Operator() {
		case "=", "==", "in":
			if values := r.ValuesUnsorted(); len(values) == 1 {
				return r.Key() + "=" + values[0], true
			}
			label = r.Key()
		case "exists", "gt", "lt":
			label = r.Key()
		}
	}
	return label, label != ""
}

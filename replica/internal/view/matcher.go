// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	selectable "github.com/watershed-project/watershed/internal/fields"
	"github.com/watershed-project/watershed/internal/objectlog"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Values are objects as Go values, shared by the readers that look at their fields. They
// are bounded by bytes.
type Values = valuecache.Sharer[runtime.Object]

// NewValues returns values of about so many bytes.
func NewValues(bytes int) *Values {
	return &Values{Make: Decode, Cache: valuecache.New(valuecache.Options{Recent: bytes})}
}

// Decode returns an object as a value of its Go type, or unstructured.
func Decode(o *wire.Object) (runtime.Object, error) {
	var into runtime.Object = &unstructured.Unstructured{}
	if kind := o.Kind(); kind.New != nil {
		into = kind.New()
	}
	return into, o.DecodeInto(into)
}

// Matcher selects the objects that a request is for. It belongs to one request.
type Matcher struct {
	values *Values
	// namespace is the namespace of the objects, "" for all.
	namespace string
	// namespaced means that the keys of the objects begin with their namespace.
	namespaced bool
	labels     labels.Selector // nil selects all
	fields     fields.Selector // nil selects all
	set        *selectable.Set
	// plain means that the fields are in the metadata.
	plain bool
	// err is set when an object could not be decoded, so that it is not known whether it
	// matches. The response must fail.
	err error
	// scans check other fields without decoding. An object that passes them all is selected
	// if exact is set, and few objects do if narrow is set.
	scans  []fieldScan
	exact  bool
	narrow bool
}

// Target is the part of a resource that a request is for.
type Target struct {
	// Namespace is "" for all namespaces, Name "" for all objects.
	Namespace, Name string
	// Namespaced means that objects of the resource are in namespaces.
	Namespaced bool
}

// fieldScan is a requirement that can be checked in the bytes of an object.
type fieldScan struct {
	path     *wire.Path
	equality selectable.Equality
}

// NewMatcher returns the matcher for the selectors of a request. Set has the fields that can
// be selected.
func NewMatcher(values *Values, opts *internalversion.ListOptions, t Target, set *selectable.Set) (*Matcher, error) {
	m := &Matcher{values: values, namespace: t.Namespace, namespaced: t.Namespaced, set: set}
	if opts.LabelSelector != nil && !opts.LabelSelector.Empty() {
		m.labels = opts.LabelSelector
	}
	if opts.FieldSelector != nil && !opts.FieldSelector.Empty() {
		var err error
		if m.fields, err = set.Parse(opts.FieldSelector.String()); err != nil {
			return nil, err
		}
	}
	if t.Name != "" {
		if m.fields != nil {
			if name, ok := m.fields.RequiresExactMatch("metadata.name"); !ok || name != t.Name {
				return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
			}
		} else {
			m.fields = fields.OneTermEqualSelector("metadata.name", t.Name)
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

// All reports whether there is no selector.
func (m *Matcher) All() bool { return m.labels == nil && m.fields == nil }

// Err returns the error of an object that could not be decoded, so that it is not known
// whether it matches. The response must fail.
func (m *Matcher) Err() error { return m.err }

// Matches reports whether an object is selected. It decodes the object only for fields
// outside the metadata, and only if the bytes do not decide. The caller checks
// [Matcher.Err].
func (m *Matcher) Matches(o *wire.Object) bool { return m.selects(o, true) }

// Some returns the places of the objects of a run that match, or nil and true if all do.
func (m *Matcher) Some(run []*wire.Object) (some []int, all bool) {
	if m.All() {
		return nil, true
	}
	for i, o := range run {
		if m.Matches(o) {
			some = append(some, i)
		}
	}
	if len(some) == len(run) {
		return nil, true
	}
	return some, false
}

// selects is Matches. Many watchers may look at the states of a change, and a scan by each
// of them can cost more than the decoded value, which they share. Scan means to scan in
// any case, and not only if few objects are selected.
func (m *Matcher) selects(o *wire.Object, scan bool) bool {
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
	value, err := m.values.Decode(o)
	if err != nil {
		m.err = &encode.UnsentError{Object: o, Err: err}
		return false
	}
	return m.fields.Matches(m.set.Of(value))
}

// scan checks the fields in the bytes of an object, and reports whether that decides.
func (m *Matcher) scan(o *wire.Object) (selected, decided bool) {
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

// name returns the only name that can match, if there is one.
func (m *Matcher) name() (string, bool) {
	if m.fields == nil {
		return "", false
	}
	return m.fields.RequiresExactMatch("metadata.name")
}

// key returns the only key that can match, if there is one.
func (m *Matcher) key() (string, bool) {
	name, ok := m.name()
	if !ok || m.namespaced && m.namespace == "" {
		return "", false
	}
	return ObjectKey(m.namespace, name), true
}

// interest returns which changes can concern the matcher: those of the requirement that
// is likely to select the fewest objects. The matcher checks the others. In this order:
// a name, a field that has many different values, a label, the namespace, any other
// field. Only a value that is required counts; "!=" selects nearly everything.
func (m *Matcher) interest() fanout.Interest {
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
	case named && !m.namespaced:
		return fanout.Key(name)
	case named && namespace != "":
		return fanout.Key(namespace + "/" + name)
	case named:
		return objectlog.HasField("metadata.name", name)
	case narrow != nil:
		return objectlog.HasField(narrow.Path, narrow.Value)
	case labelled:
		return fanout.In(objectlog.ByLabel, label)
	case namespace != "":
		return fanout.Namespace(namespace)
	case wide != nil:
		return objectlog.HasField(wide.Path, wide.Value)
	}
	return fanout.Everything()
}

// narrowest returns a label that every object has which the requirements match, with its
// value if they require one.
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

// event returns the event that a client receives for a change: an object may begin or cease
// to match. The type is 0 if the change does not concern the client, and [stream.Error] if
// that is not known because the object cannot be decoded.
func (m *Matcher) event(c *store.Change[*wire.Object]) Event {
	was := c.Type != delta.Added && m.selects(c.Old, false)
	if m.err != nil {
		return Event{Type: stream.Error, Object: c.Old}
	}
	is := c.Type != delta.Deleted && m.selects(c.New, false)
	switch {
	case m.err != nil:
		return Event{Type: stream.Error, Object: c.New}
	case was && is:
		return Event{Type: stream.Modified, Object: c.New}
	case is:
		return Event{Type: stream.Added, Object: c.New}
	case was && c.Type == delta.Deleted:
		e := Event{Type: stream.Deleted, Object: c.New}
		if c.Missed {
			e.Version = c.Version
		}
		return e
	case was:
		// The object exists but does not match any more: the client receives the last state
		// that it may see, at the version at which it ceased to match.
		return Event{Type: stream.Deleted, Object: c.Old, Version: c.Version}
	}
	return Event{}
}

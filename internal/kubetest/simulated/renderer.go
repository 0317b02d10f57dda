// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import "fmt"

// renderer encodes a resource's objects for one request. It is not safe for concurrent
// use.
type renderer struct {
	cluster  *Cluster
	resource *resource
	encoding encoding
	partial  bool // metadata only

	values values
	owned  bool // the values of the owner are set
	app    int32
}

// template returns the template of object i.
func (r *renderer) template(i int) (*template, error) {
	p := r.cluster.server.population
	kind := namespaceKind
	if r.resource.pods {
		kind = int(p.pods[i].app) % components
	}
	return p.template(kind, r.partial, r.encoding)
}

// fill sets the values of object i. touched is the version of its last change that is not
// its deletion.
func (r *renderer) fill(i int, s state, touched uint32) {
	c := r.cluster
	p := c.server.population
	if !r.resource.pods {
		r.values.fillNamespace(c.seed, i, p.namespaces[i], s)
		return
	}
	pod := &p.pods[i]
	if !r.owned || r.app != pod.app {
		r.values.fillOwner(c.seed, pod)
		r.owned, r.app = true, pod.app
	}
	// Pods that were there from the start have been touched if their version is later
	// than the initial ones.
	origin := uint32(len(p.namespaces) + len(p.pods))
	if s.born != 0 {
		origin = s.born
	}
	r.values.fillPod(c.seed, pod, s, max(touched, origin)-origin, r.encoding)
}

// appendItem appends object i as an item of a list.
func (r *renderer) appendItem(dst []byte, i int, s state) ([]byte, error) {
	t, err := r.template(i)
	if err != nil {
		return dst, err
	}
	r.fill(i, s, s.version)
	return t.append(dst, &t.item, &r.values), nil
}

// appendWhole appends object i as a response of its own.
func (r *renderer) appendWhole(dst []byte, i int, s state) ([]byte, error) {
	t, err := r.template(i)
	if err != nil {
		return dst, err
	}
	r.fill(i, s, s.version)
	return t.append(dst, &t.whole, &r.values), nil
}

// appendInitial appends object i as an initial event.
func (r *renderer) appendInitial(dst []byte, i int, s state) ([]byte, error) {
	return r.appendEvent(dst, added, i, s, s.version)
}

// appendChange appends a change with its version as an event. A deleted object is sent in
// its last state, with the version of the deletion.
func (r *renderer) appendChange(dst []byte, c change, version uint32) ([]byte, error) {
	touched := version
	if c.kind == deleted {
		touched = c.before
	}
	return r.appendEvent(dst, c.kind, int(c.pod), state{version: version, born: c.born}, touched)
}

func (r *renderer) appendEvent(dst []byte, kind changeKind, i int, s state, touched uint32) ([]byte, error) {
	t, err := r.template(i)
	if err != nil {
		return dst, err
	}
	r.fill(i, s, touched)
	return t.append(dst, &t.events[kind], &r.values), nil
}

// raw returns object i without the bytes around it.
func (r *renderer) raw(i int, s state) ([]byte, error) {
	t, err := r.template(i)
	if err != nil {
		return nil, fmt.Errorf("object %d: %w", i, err)
	}
	r.fill(i, s, s.version)
	return t.append(nil, &around{}, &r.values), nil
}

// itemSize returns how many bytes appendItem appends.
func (r *renderer) itemSize(i int) (int, error) {
	t, err := r.template(i)
	if err != nil {
		return 0, err
	}
	return t.item.size(len(t.raw)), nil
}

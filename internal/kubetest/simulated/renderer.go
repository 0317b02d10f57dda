// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import "fmt"

// renderer encodes a resource's objects for one request. It is not safe for concurrent
// use.
type renderer struct {
	population *population
	seed       uint64 // of the cluster
	resource   *resource
	encoding   encoding
	partial    bool // metadata only

	values values
	owned  bool // the values of the owner are set
	app    int32
}

// template returns the template of object i.
func (r *renderer) template(i int) (*template, error) {
	p := r.population
	kind := namespaceKind
	if r.resource.pods {
		kind = int(p.pods[i].app) % components
	}
	return p.template(kind, r.partial, r.encoding)
}

// fill sets the values of object i. touched is the version of its last change that is not
// its deletion.
func (r *renderer) fill(i int, s state, touched uint32) {
	p := r.population
	if !r.resource.pods {
		r.values.fillNamespace(r.seed, i, p.namespaces[i], s)
		return
	}
	pod := &p.pods[i]
	if !r.owned || r.app != pod.app {
		r.values.fillOwner(r.seed, pod)
		r.owned, r.app = true, pod.app
	}
	// Pods that were there from the start have been touched if their version is later
	// than the initial ones.
	origin := uint32(len(p.namespaces) + len(p.pods))
	if s.born != 0 {
		origin = s.born
	}
	r.values.fillPod(r.seed, pod, s, max(touched, origin)-origin, r.encoding)
}

// append appends object i in a frame. See fill.
func (r *renderer) append(dst []byte, f frame, i int, s state, touched uint32) ([]byte, error) {
	t, err := r.template(i)
	if err != nil {
		return dst, fmt.Errorf("object %d: %w", i, err)
	}
	r.fill(i, s, touched)
	return t.append(dst, f, &r.values), nil
}

// appendItem appends object i as an item of a list.
func (r *renderer) appendItem(dst []byte, i int, s state) ([]byte, error) {
	return r.append(dst, itemFrame, i, s, s.version)
}

// appendWhole appends object i as a response of its own.
func (r *renderer) appendWhole(dst []byte, i int, s state) ([]byte, error) {
	return r.append(dst, wholeFrame, i, s, s.version)
}

// appendInitial appends object i as an initial event.
func (r *renderer) appendInitial(dst []byte, i int, s state) ([]byte, error) {
	return r.append(dst, eventFrame(added), i, s, s.version)
}

// appendChange appends a change with its version as an event. A deleted object is sent in
// its last state, with the version of the deletion.
func (r *renderer) appendChange(dst []byte, c change, version uint32) ([]byte, error) {
	touched := version
	if c.kind == deleted {
		touched = c.before
	}
	return r.append(dst, eventFrame(c.kind), int(c.pod), state{version: version, born: c.born}, touched)
}

// raw returns object i without the bytes around it.
func (r *renderer) raw(i int, s state) ([]byte, error) {
	return r.append(nil, noFrame, i, s, s.version)
}

// itemSize returns how many bytes appendItem appends.
func (r *renderer) itemSize(i int) (int, error) {
	t, err := r.template(i)
	if err != nil {
		return 0, err
	}
	return t.frames[itemFrame].size(len(t.raw)), nil
}

// fillOwner sets the values that the pods of an app share in a cluster.
func (v *values) fillOwner(cluster uint64, p *podIdentity) {
	r := sequence(cluster, 1, uint64(p.app))
	copy(namespaceSpan.of(v), p.key)
	copy(appSpan.of(v), p.name())
	copy(hashSpan.of(v), p.name()[len("service-00000-"):])
	r.uid(ownerUIDSpan.of(v))
	r.hex(checksumSpan.of(v))
	decimal(costUnitSpan.of(v), r.between(0, 9999))
	r.letters(volumeSpan.of(v))
	release := releaseSpan.of(v)
	decimal(release[0:1], r.between(1, 5))
	decimal(release[2:4], r.between(10, 39))
	decimal(release[5:7], r.between(10, 19))
	release[1], release[4] = '.', '.'
	r.hex(imageSpan.of(v))
	r.hex(sidecarSpan.of(v))
}

// fillPod sets the values of a single pod. A pod that was created again has another uid
// and other ids, like a real one.
func (v *values) fillPod(cluster uint64, p *podIdentity, s state, touches uint32, enc encoding) {
	r := sequence(cluster, 2, uint64(p.origin), uint64(s.born))
	copy(suffixSpan.of(v), p.key[len(p.key)-suffixSpan.size:])
	r.uid(uidSpan.of(v))
	ip := podIPSpan.of(v)
	copy(ip, "10.")
	decimal(ip[3:5], r.between(64, 99))
	decimal(ip[6:9], r.between(100, 255))
	decimal(ip[10:13], r.between(100, 254))
	ip[5], ip[9] = '.', '.'
	host := hostIPSpan.of(v)
	copy(host, "192.168.")
	decimal(host[8:11], r.between(100, 255))
	decimal(host[12:15], r.between(100, 254))
	host[11] = '.'
	node := nodeSpan.of(v)
	copy(node, "node-")
	decimal(node[5:8], r.between(100, 499))
	r.hex(mainIDSpan.of(v))
	r.hex(metricIDSpan.of(v))
	made := p.made + int64(s.born)
	moment(madeSpan.of(v), made, enc)
	moment(laterSpan.of(v), made+4, enc)
	moment(touchedSpan.of(v), made+4+int64(touches), enc)
	decimal(versionSpan.of(v), firstVersion+uint64(s.version))
}

// fillNamespace sets the values that differ between namespaces.
func (v *values) fillNamespace(cluster uint64, i int, name string, s state) {
	r := sequence(cluster, 3, uint64(i))
	copy(namespaceSpan.of(v), name)
	r.uid(uidSpan.of(v))
	decimal(versionSpan.of(v), firstVersion+uint64(s.version))
}

// decimal writes n with as many digits as fit into dst.
func decimal(dst []byte, n uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
}

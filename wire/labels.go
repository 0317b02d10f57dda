// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/scan"
)

// Label returns the value of one label. It allocates only the value. It does not unpack
// the object, unless its labels are malformed.
func (o *Object) Label(key string) (string, bool) {
	b := o.body.Load()
	if b.How != nil && o.labels != unlabelled {
		return scan.FindLabel(o.labels.Value(), key)
	}
	raw, opened := o.open()
	defer opened.Free()
	var value string
	found := false
	ok := scan.EachLabel(raw, o.encoding == JSON, func(k, v []byte) {
		if string(k) == key {
			value, found = string(v), true
		}
	})
	return value, found && ok
}

// Labels returns the object's labels for use by a selector. Each lookup reads one label;
// nothing is decoded.
func (o *Object) Labels() labels.Labels { return labelled{o} }

type labelled struct{ object *Object }

func (l labelled) Has(label string) bool {
	_, ok := l.object.Label(label)
	return ok
}

func (l labelled) Get(label string) string {
	value, _ := l.object.Label(label)
	return value
}

func (l labelled) Lookup(label string) (string, bool) { return l.object.Label(label) }

// EachLabel calls a function for every label. It does not unpack the object, unless its
// labels are malformed.
func (o *Object) EachLabel(call func(key, value string)) {
	b := o.body.Load()
	if b.How != nil && o.labels != unlabelled {
		scan.EachStoredLabel(o.labels.Value(), call)
		return
	}
	raw, opened := o.open()
	defer opened.Free()
	s := buffer.NewScratch()
	defer s.Free()
	s.B, _ = scan.AppendLabels(s.B[:0], raw, o.encoding == JSON)
	scan.EachStoredLabel(string(s.B), call)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"iter"

	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/wire"
)

// writeProtoList answers with a list in protobuf. It begins with its length: the
// state, which does not change, is walked twice.
func (q *request) writeProtoList(l *listing) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	length := 1 + uvarintLen(len(meta)) + len(meta)
	for p, err := range l.items(q.server, false) {
		if err != nil {
			return err
		}
		length += p.length()
	}
	apiVersion, kind := q.listKind(l).ToAPIVersionAndKind()
	head := appendField(envelopeHead(nil, apiVersion, kind, length), 1, string(meta))
	b := q.begin(mediaTypes[asProtobuf])
	return b.finish(func() error {
		if err := b.add(part{raw: head}); err != nil {
			return err
		}
		for p, err := range l.items(q.server, false) {
			if err != nil {
				return err
			}
			if err := b.add(p); err != nil {
				return err
			}
		}
		return b.add(part{raw: envelopeTail(nil)})
	})
}

// each yields the items of a list in JSON, one by one, for people. It ends with the first
// error.
func (l *listing) each() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for p, o := range l.objects() {
			if l.matcher.err != nil {
				yield(nil, l.matcher.err)
				return
			}
			raw, err := encode(o, func() ([]byte, error) { return p.form.item(nil, o) })
			if !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

// objects yields the objects of a list. One of which it is not known whether it is wanted
// is the last, and sets the matcher's error.
func (l *listing) objects() iter.Seq2[*listPart, *wire.Object] {
	return func(yield func(*listPart, *wire.Object) bool) {
		for i := range l.parts {
			for _, o := range l.parts[i].objects {
				if !l.matcher.all() && !l.matcher.matches(o) && l.matcher.err == nil {
					continue
				}
				if !yield(&l.parts[i], o) || l.matcher.err != nil {
					return
				}
			}
		}
	}
}

// writeYAMLList answers with a list in YAML.
func (q *request) writeYAMLList(l *listing) error {
	kind := q.listKind(l)
	b := q.begin(mediaTypes[asYAML])
	return b.finish(func() error {
		if err := b.add(part{raw: []byte("apiVersion: " + kind.GroupVersion().String() + "\nitems:")}); err != nil {
			return err
		}
		empty := true
		for raw, err := range l.each() {
			if err == nil {
				raw, err = yamlItem(raw)
			}
			if err == nil {
				err = b.add(part{raw: raw})
			}
			if err != nil {
				return err
			}
			empty = false
		}
		meta, err := json.Marshal(&l.meta)
		if err != nil {
			return err
		}
		text, err := yaml.JSONToYAML(meta)
		if err != nil {
			return err
		}
		tail := []byte("\n")
		if empty {
			if tail = []byte(" []\n"); q.media.shape == partial {
				tail = []byte(" null\n")
			}
		}
		tail = append(tail, "kind: "+kind.Kind+"\nmetadata:\n  "...)
		tail = append(tail, bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))...)
		return b.add(part{raw: append(tail, '\n')})
	})
}

// yamlItem returns JSON as an item of a list in YAML, behind the end of the line before.
func yamlItem(raw []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return nil, err
	}
	lines := bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))
	return append([]byte("\n- "), lines...), nil
}

// prettyItem returns JSON as an item of a list that is a member of an object, in the way
// people like it.
func prettyItem(raw []byte, first bool) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(",\n    ")
	if first {
		out.Bytes()[0] = '['
	}
	err := json.Indent(&out, raw, "    ", "  ")
	return out.Bytes(), err
}

// writePrettyList answers with a list in JSON as people like it.
func (q *request) writePrettyList(l *listing) error {
	b := q.begin(mediaTypes[asJSON])
	return b.finish(func() error {
		head := indented(append(q.listHead(l), "[]}"...), true)
		end := bytes.LastIndexByte(head, '[')
		if err := b.add(part{raw: head[:end:end]}); err != nil {
			return err
		}
		first := true
		for raw, err := range l.each() {
			if err == nil {
				raw, err = prettyItem(raw, first)
			}
			if err == nil {
				err = b.add(part{raw: raw})
			}
			if err != nil {
				return err
			}
			first = false
		}
		tail := "\n  ]\n}\n"
		switch {
		case first && q.media.shape == partial:
			tail = "null\n}\n"
		case first:
			tail = "[]\n}\n"
		}
		return b.add(part{raw: []byte(tail)})
	})
}

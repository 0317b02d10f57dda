// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"iter"

	"sigs.k8s.io/yaml"
)

// writeProtoList answers with a list in protobuf. It begins with its length: the
// state, which does not change, is walked twice.
func (q *request) writeProtoList(l *listing) error {
	meta, err := l.meta.Marshal()
	if err != nil {
		return err
	}
	length := 1 + uvarintLen(len(meta)) + len(meta)
	for p := range l.items(q.server, false) {
		length += q.server.blocks.length(p)
	}
	apiVersion, kind := q.listKind(l).ToAPIVersionAndKind()
	head := appendField(envelopeHead(nil, apiVersion, kind, length), 1, string(meta))
	b := q.begin(mediaTypes[asProtobuf])
	return b.finish(func() error {
		if err := b.add(part{raw: head}); err != nil {
			return err
		}
		for p := range l.items(q.server, false) {
			if err := b.add(p); err != nil {
				return err
			}
		}
		return b.add(part{raw: envelopeTail(nil)})
	})
}

// each yields the items of a list in JSON, one by one, for people.
func (l *listing) each() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, p := range l.parts {
			for _, o := range p.objects {
				if !l.matcher.all() && !l.matcher.matches(o) {
					continue
				}
				raw, err := p.form.item(nil, o)
				if err != nil {
					l.matcher.server.opts.Logger.Error("object cannot be sent", "cluster", p.shelf.cluster, "object", o.String(), "err", err)
					continue
				}
				if !yield(raw) {
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
		for raw := range l.each() {
			text, err := yaml.JSONToYAML(raw)
			if err != nil {
				return err
			}
			lines := bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  "))
			if err := b.add(part{raw: append([]byte("\n- "), lines...)}); err != nil {
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

// writePrettyList answers with a list in JSON as people like it.
func (q *request) writePrettyList(l *listing) error {
	b := q.begin(mediaTypes[asJSON])
	return b.finish(func() error {
		head := indented(append(q.listHead(l), "[]}"...), true)
		end := bytes.LastIndexByte(head, '[')
		if err := b.add(part{raw: head[:end:end]}); err != nil {
			return err
		}
		separator := "\n    "
		for raw := range l.each() {
			var out bytes.Buffer
			if separator == "\n    " {
				out.WriteByte('[')
			}
			out.WriteString(separator)
			if err := json.Indent(&out, raw, "    ", "  "); err != nil {
				return err
			}
			separator = ",\n    "
			if err := b.add(part{raw: out.Bytes()}); err != nil {
				return err
			}
		}
		if separator == "\n    " && q.media.shape == partial {
			return b.add(part{raw: []byte("null\n}\n")})
		}
		tail := "[]\n}\n"
		if separator != "\n    " {
			tail = "\n  ]\n}\n"
		}
		return b.add(part{raw: []byte(tail)})
	})
}

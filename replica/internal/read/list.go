// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// list answers with the objects that the request selects, in the form that the client
// wants.
func (c *call) list(opts *internalversion.ListOptions, m *view.Matcher) error {
	end := c.Select()
	p, err := view.List(c.r.Context(), c.view, opts, m, c.Seal)
	end()
	if err != nil {
		return err
	}
	switch {
	case c.media.Shape == respond.Partial && !c.media.Listed:
		return status.New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
			fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)",
				c.goType("List")))
	case c.media.Shape == respond.Table:
		return c.writeTable(p)
	case c.media.Encoding == encode.Protobuf:
		return c.writeProtobufList(p)
	case c.media.Encoding == encode.YAML:
		return c.writeYAMLList(p)
	case c.media.Pretty:
		return c.writePrettyList(p)
	}
	return c.writeJSONList(p)
}

// writeJSONList writes a list in JSON.
func (c *call) writeJSONList(p *view.Page) error {
	b := c.begin()
	return b.Finish(func() error {
		if err := b.Add(encode.Raw(c.listHead(p))); err != nil {
			return err
		}
		separator := []byte("[")
		for item, err := range c.items(p, false) {
			if err == nil {
				err = b.Add(encode.Raw(separator))
			}
			if err == nil {
				err = b.Add(item)
			}
			if err != nil {
				return err
			}
			separator = []byte(",")
		}
		tail := "]}\n"
		if separator[0] == '[' {
			tail = c.noItems() + "}\n"
		}
		return b.Add(encode.Raw([]byte(tail)))
	})
}

// noItems returns the items of an empty list in JSON. kube-apiserver writes null for
// metadata.
func (c *call) noItems() string {
	if c.media.Shape == respond.Partial {
		return "null"
	}
	return "[]"
}

// listKind returns the kind of the list.
func (c *call) listKind() schema.GroupVersionKind {
	if c.media.Shape == respond.Partial {
		return encode.PartialKind(c.media.Version, "List")
	}
	return c.kind.GroupVersion().WithKind(c.kind.Kind + "List")
}

// listHead returns a list in JSON up to its items.
func (c *call) listHead(p *view.Page) []byte {
	meta, err := json.Marshal(&p.Meta)
	if err != nil {
		meta = []byte("{}") // strings and numbers can be encoded
	}
	head := append([]byte(encode.TypePrefix(c.listKind())), `"metadata":`...)
	return append(append(head, meta...), `,"items":`...)
}

// minShare is the share of a run, one in so many, from which on its block is made for the
// objects that are selected. Fewer objects are encoded one by one.
const minShare = 6

// items yields the parts of a list or, if events is set, of the initial events of a watch:
// blocks, and single objects where few of a block are selected. In JSON, the caller writes
// commas between the parts. No part is empty. It ends with the first error.
func (c *call) items(p *view.Page, events bool) iter.Seq2[encode.Part, error] {
	return func(yield func(encode.Part, error) bool) {
		for i := range p.Runs {
			if !c.runItems(p.Matcher, &p.Runs[i], events, yield) {
				return
			}
		}
	}
}

// runItems yields the parts of one cluster, and reports whether to continue.
func (c *call) runItems(m *view.Matcher, r *view.Run, events bool, yield func(encode.Part, error) bool) bool {
	form := c.form(r.Cluster)
	if r.Few {
		for _, o := range r.Objects {
			if !m.Matches(o) && m.Err() == nil {
				continue
			}
			if m.Err() != nil {
				yield(encode.Part{}, m.Err())
				return false
			}
			if !c.item(form, o, events, yield) {
				return false
			}
		}
		return true
	}
	source := encode.Source{Cluster: r.Cluster, Resource: c.GroupVersionResource}
	for run := range encode.Runs(r.Objects) {
		some, all := m.Some(run)
		switch {
		case m.Err() != nil:
			yield(encode.Part{}, m.Err())
			return false
		case !all && len(some) == 0:
			continue
		case all || len(some)*minShare >= len(run):
			part, err := c.Blocks.Part(source, run, encode.BlockForm{Form: form, Events: events}, some)
			if !yield(part, err) || err != nil {
				return false
			}
			continue
		}
		for _, i := range some {
			if !c.item(form, run[i], events, yield) {
				return false
			}
		}
	}
	return true
}

// item yields a single object, and reports whether to continue.
func (c *call) item(form encode.Form, o *wire.Object, events bool, yield func(encode.Part, error) bool) bool {
	key := encode.FrameKey{Object: o, Form: form, Event: encode.ItemFrame}
	if events {
		key.Event = stream.Added
	}
	raw, err := c.Frames.Get(key)
	return yield(encode.Raw(raw), err) && err == nil
}

// writeProtobufList writes a list in protobuf. It begins with its length, so the state is
// walked twice; it does not change.
func (c *call) writeProtobufList(p *view.Page) error {
	meta, err := p.Meta.Marshal()
	if err != nil {
		return err
	}
	length := encode.FieldLen(len(meta))
	for item, err := range c.items(p, false) {
		if err != nil {
			return err
		}
		length += item.Len()
	}
	apiVersion, kind := c.listKind().ToAPIVersionAndKind()
	head := encode.AppendField(encode.EnvelopeHead(nil, apiVersion, kind, length), 1, string(meta))
	b := c.begin()
	return b.Finish(func() error {
		if err := b.Add(encode.Raw(head)); err != nil {
			return err
		}
		for item, err := range c.items(p, false) {
			if err == nil {
				err = b.Add(item)
			}
			if err != nil {
				return err
			}
		}
		return b.Add(encode.Raw(encode.EnvelopeTail(nil)))
	})
}

// each yields the items of a list in JSON, one by one. It ends with the first error.
func (c *call) each(p *view.Page) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for r, o := range p.Objects() {
			if err := p.Matcher.Err(); err != nil {
				yield(nil, err)
				return
			}
			form := c.form(r.Cluster)
			raw, err := encode.Guard(o, func() ([]byte, error) { return form.Item(nil, o) })
			if !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

// frame is the text around the items of a list, or around the rows of a table.
type frame struct {
	head []byte
	// item returns the text of an item, and of what separates it from the text before it.
	item func(raw []byte, first bool) ([]byte, error)
	// tail follows the last item, and none follows head if there are no items.
	tail, none string
}

// writeFramed writes items, which are JSON, one by one in a frame.
func (c *call) writeFramed(f *frame, items iter.Seq2[[]byte, error]) error {
	b := c.begin()
	return b.Finish(func() error {
		if err := b.Add(encode.Raw(f.head)); err != nil {
			return err
		}
		first, tail := true, f.none
		for raw, err := range items {
			if err == nil {
				raw, err = f.item(raw, first)
			}
			if err == nil {
				err = b.Add(encode.Raw(raw))
			}
			if err != nil {
				return err
			}
			first, tail = false, f.tail
		}
		return b.Add(encode.Raw([]byte(tail)))
	})
}

// writeYAMLList writes a list in YAML.
func (c *call) writeYAMLList(p *view.Page) error {
	meta, err := json.Marshal(&p.Meta)
	if err != nil {
		return err
	}
	if meta, err = nestedYAML(meta); err != nil {
		return err
	}
	kind := c.listKind()
	head := "apiVersion: " + kind.GroupVersion().String() + "\nitems:"
	tail := "\nkind: " + kind.Kind + "\nmetadata:\n  " + string(meta) + "\n"
	return c.writeFramed(&frame{[]byte(head), yamlItem, tail, " " + c.noItems() + tail}, c.each(p))
}

// writePrettyList writes a list in indented JSON.
func (c *call) writePrettyList(p *view.Page) error {
	head := respond.Indent(append(c.listHead(p), "[]}"...), true)
	end := bytes.LastIndexByte(head, '[')
	return c.writeFramed(&frame{head[:end:end], prettyItem, "\n  ]\n}\n", c.noItems() + "\n}\n"}, c.each(p))
}

// nestedYAML converts JSON to YAML whose lines after the first are indented by one level. It has
// no newline at its end.
func nestedYAML(raw []byte) ([]byte, error) {
	text, err := yaml.JSONToYAML(raw)
	return bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte("\n  ")), err
}

// yamlItem converts JSON to an item of a YAML list. The result begins with the newline
// that ends the previous line.
func yamlItem(raw []byte, _ bool) ([]byte, error) {
	lines, err := nestedYAML(raw)
	return append([]byte("\n- "), lines...), err
}

// prettyItem returns JSON as an indented item of a list that is a member of an object.
// The result begins with a comma or, for the first item, with the bracket that opens the
// list.
func prettyItem(raw []byte, first bool) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(",\n    ")
	if first {
		out.Bytes()[0] = '['
	}
	err := json.Indent(&out, raw, "    ", "  ")
	return out.Bytes(), err
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// clusterColumn is the last column of tables of several clusters.
var clusterColumn = metav1.TableColumnDefinition{
	Name: "Cluster", Type: "string", Description: "The cluster that the object is in.",
}

// rows makes the rows of tables for one client.
type rows struct {
	values  *view.Values
	printer *table.Printer
	// version is that of meta.k8s.io.
	version string
	include metav1.IncludeObjectPolicy
	// clusters means that rows end with the name of their cluster: programs find the other
	// cells by their position.
	clusters bool
}

func (c *call) newRows(printer *table.Printer) (*rows, error) {
	t := &rows{
		values: c.Values, printer: printer, version: c.media.Version, clusters: c.view.Spans(),
		include: metav1.IncludeObjectPolicy(c.Query.Get("includeObject")),
	}
	switch t.include {
	case "":
		t.include = metav1.IncludeMetadata
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " +
			field.Invalid(field.NewPath("includeObject"), string(t.include),
				"must be 'Metadata', 'Object', 'None', or empty").Error())
	}
	return t, nil
}

func (t *rows) columns() []metav1.TableColumnDefinition {
	return t.located(t.printer.Columns())
}

// located adds the column of the cluster, if rows have it.
func (t *rows) located(columns []metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	if !t.clusters {
		return columns
	}
	return append(slices.Clone(columns), clusterColumn)
}

// encode returns a row in JSON, with the part of the object that the client wants.
func (t *rows) encode(row metav1.TableRow, o *wire.Object, cluster string) ([]byte, error) {
	if t.clusters {
		row.Cells = append(slices.Clone(row.Cells), cluster)
	}
	if !t.clusters {
		cluster = ""
	}
	var err error
	switch t.include {
	case metav1.IncludeMetadata:
		row.Object.Raw, err = encode.Form{Partial: true, Version: t.version, Cluster: cluster}.Object(nil, o)
	case metav1.IncludeObject:
		row.Object.Raw, err = encode.Form{Cluster: cluster}.Object(nil, o)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(&row)
}

// row returns the row of an object in JSON.
func (t *rows) row(o *wire.Object, cluster string, now time.Time) ([]byte, error) {
	return encode.Guard(o, func() ([]byte, error) {
		value, err := t.values.Decode(o)
		if err != nil {
			return nil, err
		}
		row, err := t.printer.Row(value, now)
		if err != nil {
			return nil, err
		}
		return t.encode(row, o, cluster)
	})
}

// head returns a table up to its rows. The columns may be nil.
func (t *rows) head(meta *metav1.ListMeta, columns []metav1.TableColumnDefinition) ([]byte, error) {
	about, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	names, err := json.Marshal(columns)
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"kind":"Table","apiVersion":"meta.k8s.io/`), t.version...)
	b = append(append(b, `","metadata":`...), about...)
	b = append(append(b, `,"columnDefinitions":`...), names...)
	return append(b, `,"rows":[`...), nil
}

// bookmark returns the row of a bookmark in JSON. It has no cluster.
func (t *rows) bookmark(empty runtime.Object, meta metav1.ObjectMeta) ([]byte, error) {
	row, err := t.printer.Row(empty, time.Now())
	if err != nil {
		return nil, err
	}
	if t.clusters {
		row.Cells = append(row.Cells, "")
	}
	row.Object.Object = empty
	if t.include != metav1.IncludeObject { // without metadata a bookmark would have no version
		partial := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		partial.APIVersion, partial.Kind = encode.PartialKind(t.version, "").ToAPIVersionAndKind()
		row.Object.Object = partial
	}
	return json.Marshal(&row)
}

// writeTableOf writes a table of one object.
func (c *call) writeTableOf(o *wire.Object, cluster string) error {
	t, err := c.newRows(c.Kind.Printer)
	if err != nil {
		return err
	}
	row, err := t.row(o, cluster, time.Now())
	if err != nil {
		return err
	}
	meta, err := wire.Decode[*metav1.PartialObjectMetadata](o)
	if err != nil {
		return err
	}
	head, err := t.head(&metav1.ListMeta{ResourceVersion: meta.ResourceVersion}, t.columns())
	if err != nil {
		return err
	}
	return c.writeJSON(append(append(head, row...), "]}"...))
}

// writeTable writes a table of a list, row by row.
func (c *call) writeTable(p *view.Page) error {
	t, err := c.newRows(c.Kind.Printer)
	if err != nil {
		return err
	}
	head, err := t.head(&p.Meta, t.columns())
	if err != nil {
		return err
	}
	f, err := c.tableFrame(head)
	if err != nil {
		return err
	}
	return c.writeFramed(f, t.each(p))
}

// tableFrame returns the frame for the encoding of a request. Head is the JSON of the
// table up to its rows.
func (c *call) tableFrame(head []byte) (*frame, error) {
	end := len(head) - 1 // the bracket before the first row
	whole := append(head[:len(head):len(head)], "]}"...)
	switch {
	case c.media.Encoding == encode.YAML:
		text, err := yaml.JSONToYAML(whole)
		// In the order of names, rows are the last member.
		text, found := bytes.CutSuffix(text, []byte(" []\n"))
		if err == nil && !found {
			err = errors.New("table: rows are not at the end of the YAML")
		}
		return &frame{text, yamlItem, "\n", " []\n"}, err
	case c.media.Pretty:
		text := respond.Indent(whole, true)
		return &frame{text[:bytes.LastIndexByte(text, '[')], prettyItem, "\n  ]\n}\n", "[]\n}\n"}, nil
	}
	return &frame{head[:end], func(raw []byte, first bool) ([]byte, error) {
		row := append(make([]byte, 0, 1+len(raw)), ',')
		if first {
			row[0] = '['
		}
		return append(row, raw...), nil
	}, "]}\n", "[]}\n"}, nil
}

// each yields the rows of the objects of a page in JSON. It ends with the first error.
func (t *rows) each(p *view.Page) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		now := time.Now()
		for _, r := range p.Runs {
			var all []*wire.Object
			for _, o := range r.Objects {
				if !p.Matcher.Matches(o) {
					if err := p.Matcher.Err(); err != nil {
						yield(nil, err)
						return
					}
					continue
				}
				if t.printer.Whole() {
					all = append(all, o)
					continue
				}
				row, err := t.row(o, r.Cluster, now)
				if !yield(row, err) || err != nil {
					return
				}
			}
			for row, err := range t.whole(all, r.Cluster, now) {
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

// whole yields the rows of objects whose rows depend on each other. It ends with the first error.
func (t *rows) whole(objects []*wire.Object, cluster string, now time.Time) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		of := make(map[runtime.Object]*wire.Object, len(objects))
		values := make([]runtime.Object, 0, len(objects))
		for _, o := range objects {
			value, err := view.Decode(o) // not shared: the map must have one value for each object
			if err != nil {
				yield(nil, &encode.UnsentError{Object: o, Err: err})
				return
			}
			of[value] = o
			values = append(values, value)
		}
		all, err := t.printer.Rows(values, now)
		if err != nil {
			yield(nil, err)
			return
		}
		for i, row := range all {
			raw, err := t.encode(row, of[values[i]], cluster)
			if !yield(raw, err) || err != nil {
				return
			}
		}
	}
}

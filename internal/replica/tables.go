// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	printing "github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/wire"
)

// clusterColumn says in a table of the fleet where a row is from.
var clusterColumn = metav1.TableColumnDefinition{
	Name: "Cluster", Type: "string", Description: "The cluster that the object is in.",
}

// rows makes the rows of tables for one client.
type rows struct {
	server  *Server
	printer *printing.Printer
	version string
	include metav1.IncludeObjectPolicy
	// clusters says that rows end with the name of their cluster: programs find the other
	// cells by their position.
	clusters bool
}

func (q *request) rows(printer *printing.Printer) (*rows, error) {
	t := &rows{server: q.server, printer: printer, version: q.media.version, include: metav1.IncludeObjectPolicy(q.r.URL.Query().Get("includeObject"))}
	switch t.include {
	case "":
		t.include = metav1.IncludeMetadata
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
	default:
		return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " +
			field.Invalid(field.NewPath("includeObject"), string(t.include), "must be 'Metadata', 'Object', 'None', or empty").Error())
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

// encode is a row in JSON, with what of the object the client wants.
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
		row.Object.Raw, err = form{partial: true, version: t.version, cluster: cluster}.object(nil, o)
	case metav1.IncludeObject:
		row.Object.Raw, err = form{cluster: cluster}.object(nil, o)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(&row)
}

// row prints one object.
func (t *rows) row(o *wire.Object, cluster string, now time.Time) ([]byte, error) {
	return encode(o, func() ([]byte, error) {
		value, err := t.server.values.Decode(o)
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

// head is a table up to its rows. Without columns it says null.
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

// tableOf answers with a table of one object.
func (q *request) tableOf(o *wire.Object, cluster string) error {
	t, err := q.rows(q.known.printer)
	if err != nil {
		return err
	}
	t.clusters = cluster != ""
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
	return q.writeJSON(append(append(head, row...), "]}"...))
}

// writeTable answers with a table of a list.
func (q *request) writeTable(l *listing, printer *printing.Printer) error {
	t, err := q.rows(printer)
	if err != nil {
		return err
	}
	t.clusters = l.clusters
	head, err := t.head(&l.meta, t.columns())
	if err != nil {
		return err
	}
	frame, err := q.tableFrame(head)
	if err != nil {
		return err
	}
	b := q.begin(mediaTypes[q.media.encoding])
	return b.finish(func() error {
		if err := b.add(part{raw: frame.head}); err != nil {
			return err
		}
		empty := true
		err := t.each(l, func(row []byte, first bool) error {
			empty = false
			text, err := frame.row(row, first)
			if err != nil {
				return err
			}
			return b.add(part{raw: text})
		})
		if err != nil {
			return err
		}
		tail := frame.tail
		if empty {
			tail = frame.none
		}
		return b.add(part{raw: []byte(tail)})
	})
}

// tableFrame is how a table is written around its rows, so that it can be written row by
// row.
type tableFrame struct {
	head []byte
	row  func(raw []byte, first bool) ([]byte, error)
	// tail is what follows the last row, none what follows head if there are no rows.
	tail, none string
}

// tableFrame returns the frame for the encoding of a request. Head is the JSON of the
// table up to its rows.
func (q *request) tableFrame(head []byte) (*tableFrame, error) {
	end := len(head) - 1 // the bracket before the first row
	whole := append(head[:len(head):len(head)], "]}"...)
	switch {
	case q.media.encoding == asYAML:
		text, err := yaml.JSONToYAML(whole)
		// In the order of names, rows are the last member.
		text, found := bytes.CutSuffix(text, []byte(" []\n"))
		if err == nil && !found {
			err = errors.New("table: rows are not at the end of the YAML")
		}
		return &tableFrame{text, func(raw []byte, _ bool) ([]byte, error) { return yamlItem(raw) }, "\n", " []\n"}, err
	case q.media.pretty:
		text := indented(whole, true)
		return &tableFrame{text[:bytes.LastIndexByte(text, '[')], prettyItem, "\n  ]\n}\n", "[]\n}\n"}, nil
	}
	return &tableFrame{head[:end], func(raw []byte, first bool) ([]byte, error) {
		row := append(make([]byte, 0, 1+len(raw)), ',')
		if first {
			row[0] = '['
		}
		return append(row, raw...), nil
	}, "]}\n", "[]}\n"}, nil
}

// each prints the objects of a list.
func (t *rows) each(l *listing, write func(row []byte, first bool) error) error {
	now, first := time.Now(), true
	for _, p := range l.parts {
		var all []*wire.Object
		for _, o := range p.objects {
			if !l.matcher.all() && !l.matcher.matches(o) {
				if l.matcher.err != nil {
					return l.matcher.err
				}
				continue
			}
			if t.printer.Whole() {
				all = append(all, o)
				continue
			}
			row, err := t.row(o, p.shelf.cluster, now)
			if err != nil {
				return err
			}
			if err := write(row, first); err != nil {
				return err
			}
			first = false
		}
		if err := t.whole(all, p.shelf.cluster, now, func(row []byte) error {
			defer func() { first = false }()
			return write(row, first)
		}); err != nil {
			return err
		}
	}
	return nil
}

// whole prints objects whose rows depend on each other.
func (t *rows) whole(objects []*wire.Object, cluster string, now time.Time, write func([]byte) error) error {
	if len(objects) == 0 {
		return nil
	}
	of := make(map[runtime.Object]*wire.Object, len(objects))
	values := make([]runtime.Object, 0, len(objects))
	for _, o := range objects {
		value, err := decoded(o) // not shared: two that are one would be one row
		if err != nil {
			return &unsentError{o, err}
		}
		of[value] = o
		values = append(values, value)
	}
	all, err := t.printer.Rows(values, now)
	if err != nil {
		return err
	}
	for i, row := range all {
		raw, err := t.encode(row, of[values[i]], cluster)
		if err != nil {
			return err
		}
		if err := write(raw); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Printer prints objects of one kind.
type Printer struct {
	columns []column
	cells   func(obj runtime.Object, now time.Time) ([]any, error)

	// conditions returns the conditions of a row. It is nil for most kinds.
	conditions func(obj runtime.Object) []metav1.TableRowCondition
	// order sorts a list for printing. It is nil if the list is printed as it is.
	order func(list []runtime.Object)
	// mark modifies the rows whose text depends on other objects of the list.
	mark func(list []runtime.Object, rows []metav1.TableRow)
}

// Columns returns the headers. The caller owns the slice.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return slices.Clone(p.columns) }

// Row returns the row of one object, as in the response to a get and in an event of a
// watch. The caller sets the Object of the row. Ages are relative to now.
func (p *Printer) Row(obj runtime.Object, now time.Time) (metav1.TableRow, error) {
	cells, err := p.cells(obj, now)
	if err != nil {
		return metav1.TableRow{}, err
	}
	row := metav1.TableRow{Cells: cells}
	if p.conditions != nil {
		row.Conditions = p.conditions(obj)
	}
	return row, nil
}

// Whole reports whether a list has to be printed by Rows, because its order or the text
// of a row depends on the other objects. Lists of other kinds may be printed by Row, one
// object after the other.
func (p *Printer) Whole() bool { return p.order != nil || p.mark != nil }

// Rows returns the rows of a list. It first sorts list into the order in which the server
// prints it, so that row i belongs to object i.
func (p *Printer) Rows(list []runtime.Object, now time.Time) ([]metav1.TableRow, error) {
	if p.order != nil {
		p.order(list)
	}
	rows := make([]metav1.TableRow, 0, len(list))
	for _, obj := range list {
		row, err := p.Row(obj, now)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if p.mark != nil {
		p.mark(list, rows)
	}
	return rows, nil
}

// printer returns a function that makes a printer for objects of a Go type, with these
// columns and cells.
func printer[O runtime.Object](columns func() []column, cells func(o O, now time.Time) []any) func() *Printer {
	return func() *Printer { return &Printer{columns: columns(), cells: of(cells)} }
}

// of returns cells as a function of any object. That function fails for objects of
// another Go type.
func of[O runtime.Object](cells func(o O, now time.Time) []any) func(runtime.Object, time.Time) ([]any, error) {
	return func(obj runtime.Object, now time.Time) ([]any, error) {
		o, ok := obj.(O)
		if !ok {
			var want O
			return nil, fmt.Errorf("print a %T as a %T", obj, want)
		}
		return cells(o, now), nil
	}
}

// ofMeta is like of, but for cells that need only the metadata. The objects may be of any
// Go type.
func ofMeta(cells func(o metav1.Object, now time.Time) []any) func(runtime.Object, time.Time) ([]any, error) {
	return func(obj runtime.Object, now time.Time) ([]any, error) {
		o, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("print a %T, which has no metadata", obj)
		}
		return cells(o, now), nil
	}
}

// nameAndAge returns a printer for kinds that have only a name and an age to show.
func nameAndAge() *Printer {
	return &Printer{
		columns: []column{nameColumn, ageColumn},
		cells: ofMeta(func(o metav1.Object, now time.Time) []any {
			return []any{o.GetName(), age(o.GetCreationTimestamp(), now)}
		}),
	}
}

// plain returns a printer for kinds for which the server has no columns of its own.
func plain() *Printer {
	return &Printer{
		columns: []column{nameColumn, createdColumn},
		cells: ofMeta(func(o metav1.Object, _ time.Time) []any {
			return []any{o.GetName(), created(o.GetCreationTimestamp())}
		}),
	}
}

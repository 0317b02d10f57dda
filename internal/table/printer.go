// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Printer prints objects of one kind.
type Printer struct {
	columns []column
	cells   func(obj runtime.Object, now time.Time) ([]any, error)

	// conditions are those of a row. Most kinds have none.
	conditions func(obj runtime.Object) []metav1.TableRowCondition
	// order puts a list in the order that it is printed in.
	order func(list []runtime.Object)
	// mark changes rows by what the whole list says.
	mark func(list []runtime.Object, rows []metav1.TableRow)
}

// For is how objects of a built-in kind are printed, not ok if the kind is not
// built in. Objects are of the Go type that client-go's scheme has for the kind;
// those of CustomResourceDefinition and APIService, which it does not have, are
// unstructured.
func For(kind schema.GroupVersionKind) (p *Printer, ok bool) {
	p, ok = builtin()[kind]
	return p, ok
}

// Columns are the headers. The slice is the caller's.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return slices.Clone(p.columns) }

// Row prints one object, as the answer to a get and an event of a watch have it.
// Its Object is left to the caller. now is what ages are counted to.
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

// Whole says that a list has to be printed by Rows: its order, or what a row
// says, depends on the other objects. Lists of other kinds may be printed by Row,
// one object after the other.
func (p *Printer) Whole() bool { return p.order != nil || p.mark != nil }

// Rows prints a list. It puts the list in the order that the server prints it in;
// row i is then that of object i.
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

// registry has the printers of the built-in kinds.
type registry map[schema.GroupVersionKind]*Printer

var builtin = sync.OnceValue(func() registry {
	r := registry{}
	r.addPods()
	r.addNodes()
	r.addConfiguration()
	r.addEvents()
	r.addServices()
	r.addVolumes()
	r.addWorkloads()
	r.addJobs()
	r.addAutoscalers()
	r.addNetworking()
	r.addStorage()
	r.addAccess()
	r.addCertificates()
	r.addAdmission()
	r.addFlowControl()
	r.addDevices()
	r.addScheduling()
	r.addEvictions()
	r.addMigrations()
	r.addDefinitions()
	return r
})

// add registers a printer for a kind in a version.
func (r registry) add(version schema.GroupVersion, kind string, p *Printer) {
	r[version.WithKind(kind)] = p
}

// of prints objects of a Go type.
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

// ofMeta prints objects that are printed by their metadata alone, typed or not.
func ofMeta(cells func(o metav1.Object, now time.Time) []any) func(runtime.Object, time.Time) ([]any, error) {
	return func(obj runtime.Object, now time.Time) ([]any, error) {
		o, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("print a %T, which has no metadata", obj)
		}
		return cells(o, now), nil
	}
}

// nameAndAge prints kinds of which that is all there is to see.
func nameAndAge() *Printer {
	return &Printer{
		columns: []column{nameColumn, ageColumn},
		cells: ofMeta(func(o metav1.Object, now time.Time) []any {
			return []any{o.GetName(), age(o.GetCreationTimestamp(), now)}
		}),
	}
}

// plain prints kinds for which the server has no columns of its own.
func plain() *Printer {
	return &Printer{
		columns: []column{nameColumn, createdColumn},
		cells: ofMeta(func(o metav1.Object, _ time.Time) []any {
			return []any{o.GetName(), created(o.GetCreationTimestamp())}
		}),
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

type column = metav1.TableColumnDefinition

var metaDoc = metav1.ObjectMeta{}.SwaggerDoc()

// Columns of many kinds.
var (
	nameColumn       = column{Name: "Name", Type: "string", Format: "name", Description: metaDoc["name"]}
	ageColumn        = text("Age", metaDoc["creationTimestamp"])
	createdColumn    = column{Name: "Created At", Type: "date", Description: metaDoc["creationTimestamp"]}
	containersColumn = text("Containers", "Names of each container in the template.")
	imagesColumn     = text("Images", "Images referenced by each container in the template.")
)

// templateColumns returns the wide columns of kinds that select the pods of a template.
func templateColumns(selector string) []column {
	return []column{wide(containersColumn), wide(imagesColumn), wide(text("Selector", selector))}
}

func text(name, description string) column {
	return column{Name: name, Type: "string", Description: description}
}

func integer(name, description string) column {
	return column{Name: name, Type: "integer", Description: description}
}

func boolean(name, description string) column {
	return column{Name: name, Type: "boolean", Description: description}
}

// wide returns a column that kubectl shows only with -o wide.
func wide(c column) column {
	c.Priority = 1
	return c
}

// The texts of cells that have no value, as kubectl shows them.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// age returns the time since t as text, or unknown if t is zero.
func age(t metav1.Time, now time.Time) string { return since(t.Time, now) }

func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// created returns the text of a creation time.
func created(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// or returns s, or placeholder if s is "".
func or(s, placeholder string) string {
	if s == "" {
		return placeholder
	}
	return s
}

// deref returns *p, or missing if p is nil.
func deref[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}

// quantity returns the text of q. It calls [resource.Quantity.String] on a copy, because
// String writes to its receiver and objects are shared.
func quantity(q *resource.Quantity) string {
	if q == nil {
		return q.String()
	}
	c := *q
	return c.String()
}

// ratio returns "a/b".
func ratio[N int | int32](a, b N) string {
	return strconv.Itoa(int(a)) + "/" + strconv.Itoa(int(b))
}

// clip joins the strings of list, which are the first of count strings, and appends how
// many are left out.
func clip(list []string, separator string, count int) string {
	s := strings.Join(list, separator)
	if count > len(list) {
		s = fmt.Sprintf("%s + %d more...", s, count-len(list))
	}
	return s
}

// uniqueSorted sorts the strings, joins them with commas, and leaves out empty strings
// and duplicates. It modifies list.
func uniqueSorted(list []string) string {
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

// containers returns the names of the containers and their images, each joined with
// commas.
func containers(list []corev1.Container) (names, images string) {
	if len(list) == 1 {
		return list[0].Name, list[0].Image
	}
	n, i := make([]string, 0, len(list)), make([]string, 0, len(list))
	for _, c := range list {
		n = append(n, c.Name)
		i = append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

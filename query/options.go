// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

// Resources are the resources that can be queried, and the indexes of each. A fleet
// mirrors each cluster's own version, and [NewFleet] ignores the version here.
type Resources map[schema.GroupVersionResource]Indexers

// Indexers are the functions of indexes, by the names that requests use. A function
// returns the values under which an object is found, as for [watershed.IndexBy]. It can
// read labels and names from the object as it is, and everything else with
// [wire.Decode].
type Indexers map[string]func(*wire.Object) []string

// Options configure a [Handler]. The zero value, and nil, are the defaults.
type Options struct {
	// Limit is the largest number of objects, or keys, in a response. Requests may ask for
	// fewer. Default 500.
	Limit int
	// Bytes limits the objects of a response: it ends after the object that exceeds the
	// limit. Default 8 MiB.
	Bytes int
	// Logger logs the objects that cannot be written as JSON, each state once. Default:
	// slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Limit <= 0 {
		opts.Limit = 500
	}
	if opts.Bytes <= 0 {
		opts.Bytes = 8 << 20
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package metrics tells Prometheus what informers keep in memory. It is apart from
// the library so that only who wants Prometheus gets it.
//
// # Guarantees
//
// A scrape shows the informers that run at that moment: the series of one that has
// stopped end. The names, all gauges, are
//
//	watershed_objects{cluster, resource}
//	watershed_objects_packed{cluster, resource}
//	watershed_memory_bytes{cluster, resource, part}
//
// where part is objects, keys, indexes, log, dictionaries or decoded. Informers of
// the same cluster and resource, with different selectors say, are added up.
//
// # What blocks
//
// Nothing waits for anything but the processor: a scrape looks at every object,
// some 50 ns each.
//
// # Bounds and ownership
//
// Nothing is kept between scrapes.
package metrics

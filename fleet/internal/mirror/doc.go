// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package mirror keeps the copies of the resources of one cluster. A [Mirror] is one resource: an informer,
// its source, its part of the collection, and its feed. A [Set] has the mirrors of a member: it starts and
// ends them as the cluster's resources change, and replaces one by another when the cluster serves the
// resource in another version.
//
// # Guarantees
//
//   - A resource in a new version is mirrored next to the old one, and takes its place once it has synced.
//   - A mirror of a resource that discovery could not read, or that has a definition, stays.
//   - A resource whose objects have fields that this program does not know is read as JSON, also after a
//     restart.
//
// # What blocks
//
// Only [Set.Wait] and [Set.WaitIfEmpty] wait, for mirrors that are ending.
//
// # Bounds and ownership
//
// The mu of a set guards its maps. The mu of the member is taken before it. The mu of the catalog, of the
// collections, and of the member that this one replaces are taken after it. An idle mirror costs two
// goroutines, one of which is net/http's, and about 20 KB besides the objects.
package mirror

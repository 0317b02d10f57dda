// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"reflect"
	"sync"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/read"
)

// maxDocumentSets limits for how many sets of members discovery documents are kept. Sets
// with the same resources share them: 100 KB for a cluster without custom types.
const maxDocumentSets = 64

// fleetDocuments keeps the discovery documents for the sets of members that callers see.
// All methods are safe for concurrent use.
type fleetDocuments struct {
	mu   sync.Mutex
	sets map[string]*setDocuments
	uses uint64
}

// setDocuments are the documents for one set, and what they are made from.
type setDocuments struct {
	setResources
	documents *discovery.Documents
	used      uint64
}

// setResources are the resources of a set of members.
type setResources struct {
	served, unmirrored []kube.Resource
	// definitions means that a member mirrors CustomResourceDefinitions.
	definitions bool
}

// of returns the documents for a set whose resources are known.
func (d *fleetDocuments) of(set string, r setResources) *discovery.Documents {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uses++
	one := d.sets[set]
	if one == nil || !reflect.DeepEqual(one.setResources, r) {
		one = &setDocuments{setResources: r, documents: d.sameLocked(r)}
		if one.documents == nil {
			one.documents = discovery.New(read.WithCopied(r.served, r.definitions), r.unmirrored, nil, nil)
		}
		if d.sets == nil {
			d.sets = map[string]*setDocuments{}
		}
		d.sets[set] = one
	}
	one.used = d.uses
	if len(d.sets) > maxDocumentSets {
		d.dropLocked()
	}
	return one.documents
}

// sameLocked returns the documents for the same resources, nil if there are none.
func (d *fleetDocuments) sameLocked(r setResources) *discovery.Documents {
	for _, other := range d.sets {
		if reflect.DeepEqual(other.setResources, r) {
			return other.documents
		}
	}
	return nil
}

// dropLocked drops the set that was not used for the longest time.
func (d *fleetDocuments) dropLocked() {
	oldest := ""
	for set, one := range d.sets {
		if oldest == "" || one.used < d.sets[oldest].used {
			oldest = set
		}
	}
	delete(d.sets, oldest)
}

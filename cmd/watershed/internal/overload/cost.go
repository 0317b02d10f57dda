// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

// Cost is how many units a request holds while it is served.
type Cost int

// Get is the cost of a request for one object, or for a document.
const Get Cost = 1

// objectsPerUnit is how many objects of a list cost as much as a GET. It is the figure of
// kube-apiserver.
const objectsPerUnit = 100

// List returns the cost of a list, or of a watch that starts with a list. Objects is an
// estimate of how many objects the server has to read for it, whether or not they match
// a selector. [Options.MaxCost] limits the result.
func List(objects int) Cost {
	return Get + Cost(max(objects, 0)/objectsPerUnit)
}

// bytesPerPlace is how many bytes of a selector count as much as a watch. The parsed selector
// takes some nine times its bytes of memory, so a place is some 5 KB of it.
const bytesPerPlace = 512

// Places returns how many watches a watch counts as, by the bytes of its selectors.
func Places(selectors int) int { return 1 + max(selectors, 0)/bytesPerPlace }

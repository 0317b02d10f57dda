// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import "github.com/watershed-project/watershed/replica/internal/past"

// ChangesPath is the path below the root of the API of a cluster, or of the fleet, with the
// numbers of changes. Its parameters are since, until and by, and below /fleet a labelSelector
// for clusters. A caller needs the right to get the path. Counted are the resources that the
// caller may list in all namespaces.
const ChangesPath = past.SummaryPath

// The documents about changes in the past.
type (
	// ChangeList is the response to a request for the changes of objects.
	ChangeList = past.ChangeList
	// Change is a change of an object in the past.
	Change = past.Change
	// Difference is a field that differs. Old or New is missing if the field is.
	Difference = past.Difference
	// ChangeSummary is the response at [ChangesPath]: how many changes there were.
	ChangeSummary = past.ChangeSummary
	// ChangeCount is the number of changes that have the same values.
	ChangeCount = past.ChangeCount
	// PartialCluster is a cluster whose past is not complete in a response below /fleet.
	PartialCluster = past.PartialCluster
)

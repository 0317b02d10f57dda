// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import "github.com/watershed-project/watershed/replica"

// MetricsPath is the path of the metrics. They contain the names of all clusters and
// resources, so not every caller may read them.
const MetricsPath = "/metrics"

// isMetrics reports whether a request is for the metrics of the server itself.
func isMetrics(q *replica.Request) bool {
	return q.Cluster == "" && !q.Fleet && q.Path == MetricsPath
}

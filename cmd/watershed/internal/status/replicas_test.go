// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"fmt"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/document"
)

func TestReport_replicas(t *testing.T) {
	r := &Report{At: noon}
	many := document.Replica{Name: "slot 9", Connected: true, Reported: ago(time.Second)}
	for i := range 10 {
		c := document.ReplicaCluster{Name: fmt.Sprint("c", i), State: "live", Behind: 1}
		many.Clusters = append(many.Clusters, c)
	}
	r.Clusters.Replicas = []document.Replica{
		{Name: "slot 1", Connected: true, Reported: ago(2 * time.Second), Clusters: []document.ReplicaCluster{
			{Name: "eu", State: "live"}, {Name: "us", State: "live"},
		}},
		{
			Name: "slot 2", Address: "10.0.0.2:7444", Error: "connection refused", Reported: ago(time.Minute),
			Clusters: []document.ReplicaCluster{
				{Name: "a", State: "live", Behind: 12}, {Name: "b", State: "live", Behind: -1},
				{Name: "c", State: "stale", Behind: 9}, {Name: "d", Difference: document.OnlyHere},
				{Name: "e", State: "live", Difference: document.OnlyThere},
				{Name: "f", Difference: document.OtherCluster},
			},
		},
		{Name: "slot 3"}, many,
	}
	golden(t, "replicas", r.Lines(false, false))
	r.Clusters.Clusters = []document.Cluster{{Name: "a"}, {Name: "z"}}
	if err := r.Select([]string{"a"}); err != nil || len(r.Clusters.Replicas[1].Clusters) != 1 {
		t.Errorf("%v: %v", err, r.Clusters.Replicas[1].Clusters)
	}
}

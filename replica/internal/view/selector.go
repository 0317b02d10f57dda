// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/replica/internal/encode"
)

// clusterLabel is a label that selectors of the fleet can use although no object has it:
// the name of the cluster of an object. Objects have it as an annotation.
const clusterLabel = encode.ClusterAnnotation

// ClusterSelector returns the requirements of a label selector on clusters, nil if it has
// none. A selector that cannot be parsed is reported later, with all other parameters.
func ClusterSelector(text string) labels.Selector {
	if !strings.Contains(text, clusterLabel) {
		return nil
	}
	all, err := labels.Parse(text)
	if err != nil {
		return nil
	}
	clusters, _ := SplitSelector(all)
	return clusters
}

// SplitSelector returns the requirements of a selector on clusters, nil if there are none,
// and those on objects.
func SplitSelector(all labels.Selector) (clusters, objects labels.Selector) {
	if all == nil {
		return nil, nil
	}
	requirements, _ := all.Requirements()
	if !slices.ContainsFunc(requirements, isOfCluster) {
		return nil, all
	}
	clusters, objects = labels.NewSelector(), labels.NewSelector()
	for _, r := range requirements {
		if isOfCluster(r) {
			clusters = clusters.Add(r)
		} else {
			objects = objects.Add(r)
		}
	}
	return clusters, objects
}

func isOfCluster(r labels.Requirement) bool { return r.Key() == clusterLabel }

// Selects reports whether a selector of clusters, which may be nil, selects a cluster.
func Selects(selector labels.Selector, cluster string) bool {
	return selector == nil || selector.Matches(labels.Set{clusterLabel: cluster})
}

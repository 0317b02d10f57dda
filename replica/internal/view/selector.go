// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/replica/internal/encode"
)

// ClusterLabel is a label that selectors of the fleet can use although no object has it:
// the name of the cluster of an object. Objects have it as an annotation.
const ClusterLabel = encode.ClusterAnnotation

// labelDomain marks the labels of clusters in selectors of the fleet, although no object has
// them: cluster.watershed.dev/env is the label env of the cluster of an object, and
// example.com.cluster.watershed.dev/env is its label example.com/env.
const labelDomain = "cluster.watershed.dev"

// ClusterSelector returns the requirements of a label selector on clusters, nil if it has
// none. A selector that cannot be parsed is reported later, with all other parameters.
func ClusterSelector(text string) labels.Selector {
	if !strings.Contains(text, ClusterLabel) && !strings.Contains(text, labelDomain) {
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

func isOfCluster(r labels.Requirement) bool { return r.Key() == ClusterLabel || isOfLabel(r) }

// isOfLabel reports whether a requirement is about a label of clusters.
func isOfLabel(r labels.Requirement) bool {
	domain, _, ok := strings.Cut(r.Key(), "/")
	return ok && (domain == labelDomain || strings.HasSuffix(domain, "."+labelDomain))
}

// SplitClusters returns the requirements of a selector of clusters on their names, and those on
// their labels, each nil if there are none.
func SplitClusters(clusters labels.Selector) (names, own labels.Selector) {
	if clusters == nil {
		return nil, nil
	}
	requirements, _ := clusters.Requirements()
	for _, r := range requirements {
		to := &names
		if isOfLabel(r) {
			to = &own
		}
		if *to == nil {
			*to = labels.NewSelector()
		}
		*to = (*to).Add(r)
	}
	return names, own
}

// SelectsLabels reports whether the requirements on labels, which may be nil, select a cluster
// with these labels.
func SelectsLabels(selector labels.Selector, own map[string]string) bool {
	if selector == nil {
		return true
	}
	set := make(labels.Set, len(own))
	for key, value := range own {
		domain, name, ok := strings.Cut(key, "/")
		if ok {
			set[domain+"."+labelDomain+"/"+name] = value
		} else {
			set[labelDomain+"/"+key] = value
		}
	}
	return selector.Matches(set)
}

// Selects reports whether the requirements on names, which may be nil, select a cluster.
func Selects(selector labels.Selector, cluster string) bool {
	return selector == nil || selector.Matches(labels.Set{ClusterLabel: cluster})
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Cluster is what a file says about one cluster. It does not add the cluster: the sources do.
type Cluster struct {
	// Name is the name of the cluster in the fleet.
	Name string
	// Labels are added to the labels that its source reports, and have precedence.
	Labels map[string]string
}

// The keys of a cluster in the file.
const (
	clusterName   = "name"
	clusterLabels = "labels"
)

// clusters reads the list of clusters.
func (r *reader) clusters(n *yaml.Node) (all []Cluster) {
	if n.Kind != yaml.SequenceNode {
		r.add(r.at(n), "clusters: want a list of clusters, found %s", found(n))
		return nil
	}
	names := map[string]bool{}
	for _, item := range n.Content {
		c, ok := r.cluster(resolve(item))
		if !ok {
			continue
		}
		if names[c.Name] {
			r.add(r.at(item), "clusters: two entries have the name %s", c.Name)
		}
		names[c.Name] = true
		all = append(all, c)
	}
	return all
}

// cluster reads one entry. After an error it returns false.
func (r *reader) cluster(n *yaml.Node) (c Cluster, ok bool) {
	if n.Kind != yaml.MappingNode {
		r.add(r.at(n), "clusters: want name and labels, found %s", found(n))
		return c, false
	}
	before := len(r.problems)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], resolve(n.Content[i+1])
		if seen[key.Value] {
			r.add(r.at(key), "clusters: %s occurs twice", key.Value)
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case clusterName:
			if v := r.scalarOrList(child, "clusters: name", text); v != nil {
				c.Name = v.text
			}
		case clusterLabels:
			c.Labels = r.labels(child)
		default:
			hint := ""
			if near := Nearest(key.Value, []string{clusterName, clusterLabels}); near != "" {
				hint = ": did you mean " + near + "?"
			}
			r.add(r.at(key), "clusters: unknown key %s%s", key.Value, hint)
		}
	}
	if c.Name == "" && len(r.problems) == before {
		r.add(r.at(n), "clusters: an entry has no name")
	}
	return c, len(r.problems) == before
}

// labels reads the labels of a cluster.
func (r *reader) labels(n *yaml.Node) map[string]string {
	if n.Kind != yaml.MappingNode {
		r.add(r.at(n), "clusters: labels: want keys and values, found %s", found(n))
		return nil
	}
	all := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], resolve(n.Content[i+1])
		if _, ok := all[key.Value]; ok {
			r.add(r.at(key), "clusters: label %s occurs twice", key.Value)
			continue
		}
		v := r.scalarOrList(child, "clusters: label "+key.Value, text)
		if v == nil {
			continue
		}
		if reasons := validation.IsQualifiedName(key.Value); len(reasons) > 0 {
			r.add(r.at(key), "clusters: label %q: %s", key.Value, strings.Join(reasons, "; "))
		}
		if reasons := validation.IsValidLabelValue(v.text); len(reasons) > 0 {
			r.add(v.at, "clusters: value of label %s: %s", key.Value, strings.Join(reasons, "; "))
		}
		all[key.Value] = v.text
	}
	return all
}

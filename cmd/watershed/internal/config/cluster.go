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

// readClusters reads the list of clusters.
func (p *parser) readClusters(key, n *yaml.Node) {
	p.file.clustersAt = p.at(key)
	if n.Kind != yaml.SequenceNode {
		p.add(p.at(n), "clusters: want a list of clusters, found %s", found(n))
		return
	}
	names := map[string]bool{}
	for _, item := range n.Content {
		c, ok := p.cluster(resolve(item))
		if !ok {
			continue
		}
		if names[c.Name] {
			p.add(p.at(item), "clusters: two entries have the name %s", c.Name)
		}
		names[c.Name] = true
		p.file.clusters = append(p.file.clusters, c)
	}
}

// cluster reads one entry. After an error it returns false.
func (p *parser) cluster(n *yaml.Node) (c Cluster, ok bool) {
	if n.Kind != yaml.MappingNode {
		p.add(p.at(n), "clusters: want name and labels, found %s", found(n))
		return c, false
	}
	before := len(p.problems)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], resolve(n.Content[i+1])
		if seen[key.Value] {
			p.add(p.at(key), "clusters: %s occurs twice", key.Value)
			continue
		}
		seen[key.Value] = true
		switch key.Value {
		case clusterName:
			if v := p.scalarOrList(child, "clusters: name", text); v != nil {
				c.Name = v.text
			}
		case clusterLabels:
			c.Labels = p.labels(child)
		default:
			hint := ""
			if near := nearest(key.Value, []string{clusterName, clusterLabels}); near != "" {
				hint = ": did you mean " + near + "?"
			}
			p.add(p.at(key), "clusters: unknown key %s%s", key.Value, hint)
		}
	}
	if c.Name == "" && len(p.problems) == before {
		p.add(p.at(n), "clusters: an entry has no name")
	}
	return c, len(p.problems) == before
}

// labels reads the labels of a cluster.
func (p *parser) labels(n *yaml.Node) map[string]string {
	if n.Kind != yaml.MappingNode {
		p.add(p.at(n), "clusters: labels: want keys and values, found %s", found(n))
		return nil
	}
	all := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], resolve(n.Content[i+1])
		if _, ok := all[key.Value]; ok {
			p.add(p.at(key), "clusters: label %s occurs twice", key.Value)
			continue
		}
		v := p.scalarOrList(child, "clusters: label "+key.Value, text)
		if v == nil {
			continue
		}
		if reasons := validation.IsQualifiedName(key.Value); len(reasons) > 0 {
			p.add(p.at(key), "clusters: label %q: %s", key.Value, strings.Join(reasons, "; "))
		}
		if reasons := validation.IsValidLabelValue(v.text); len(reasons) > 0 {
			p.add(v.at, "clusters: value of label %s: %s", key.Value, strings.Join(reasons, "; "))
		}
		all[key.Value] = v.text
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package status

import (
	"fmt"
	"strings"

	"github.com/watershed-project/watershed/internal/document"
)

// maxDifferences is how many clusters of another replica a line names.
const maxDifferences = 8

// Replicas returns a line for each other replica: whether it is connected, and how its copies differ
// from the copies of this replica.
func (r *Report) Replicas() []string {
	var lines []string
	for i := range r.Clusters.Replicas {
		p := &r.Clusters.Replicas[i]
		text := p.Name
		if p.Address != "" {
			text += " at " + p.Address
		}
		switch {
		case p.Connected:
			text += ": connected"
		case p.Error != "":
			text += ": unreachable: " + p.Error
		default:
			text += ": unreachable"
		}
		if !p.Reported.IsZero() {
			text += fmt.Sprintf("; %s, as of %s ago", differences(p.Clusters), r.age(p.Reported))
		}
		lines = append(lines, text)
	}
	return lines
}

// differences returns how the copies of another replica differ.
func differences(clusters []document.ReplicaCluster) string {
	var all []string
	for _, c := range clusters {
		switch {
		case c.Difference == document.OnlyHere:
			all = append(all, c.Name+" is missing there")
		case c.Difference == document.OnlyThere:
			all = append(all, c.Name+" is missing here")
		case c.Difference != "":
			all = append(all, c.Name+" is "+c.Difference+" there")
		case c.State != "live":
			all = append(all, c.Name+" is "+c.State+" there")
		case c.Behind > 0:
			all = append(all, fmt.Sprintf("%s is %s behind", c.Name, Counted(int(c.Behind), "version")))
		case c.Behind < 0:
			all = append(all, fmt.Sprintf("%s is %s ahead", c.Name, Counted(int(-c.Behind), "version")))
		}
	}
	text := Counted(len(clusters), "cluster") + " "
	switch more := len(all) - maxDifferences; {
	case len(all) == 0:
		return text + "as here"
	case more > 0:
		return text + fmt.Sprintf("(%s, and %d more)", strings.Join(all[:maxDifferences], ", "), more)
	}
	return text + "(" + strings.Join(all, ", ") + ")"
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"errors"
	"fmt"
	"strings"
)

// step is a part of a path: a member, and whether the rest applies to each element of it.
type step struct {
	name string
	each bool
}

var errPath = errors.New("use members such as .spec.nodeName, .spec.containers[*].image or .metadata.labels['a.b']")

// parsePath reads a path: names after dots or in ['...'], and [*] after at most one of them
// for all elements of a list. The first dot may be missing.
func parsePath(path string) ([]step, error) {
	var steps []step
	lists := 0
	for rest := path; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "[*]") && len(steps) > 0 && !steps[len(steps)-1].each:
			steps[len(steps)-1].each = true
			rest = rest[len("[*]"):]
			lists++
		case strings.HasPrefix(rest, "['"):
			name, after, ok := strings.Cut(rest[2:], "']")
			if !ok || name == "" || strings.Contains(name, "'") {
				return nil, fmt.Errorf("path %q: %w", path, errPath)
			}
			steps, rest = append(steps, step{name: name}), after
		default:
			if rest[0] == '.' {
				rest = rest[1:]
			} else if len(steps) > 0 {
				return nil, fmt.Errorf("path %q: %w", path, errPath)
			}
			n := strings.IndexAny(rest, ".[")
			if n < 0 {
				n = len(rest)
			}
			if n == 0 || strings.ContainsAny(rest[:n], "]*'\"()?@ ") {
				return nil, fmt.Errorf("path %q: %w", path, errPath)
			}
			steps, rest = append(steps, step{name: rest[:n]}), rest[n:]
		}
	}
	switch {
	case len(steps) == 0:
		return nil, fmt.Errorf("path %q: %w", path, errPath)
	case lists > 1:
		return nil, fmt.Errorf("path %q: [*] is possible once", path)
	}
	return steps, nil
}

// canonical returns a path in the form that names facets: without the first dot, and with names
// in brackets only if they have dots or brackets.
func canonical(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case strings.ContainsAny(s.name, ".["):
			b.WriteString("['" + s.name + "']")
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
		if s.each {
			b.WriteString("[*]")
		}
	}
	return b.String()
}

// secret returns an error if a path leads to the content of a Secret. The annotation of kubectl
// apply has a copy of it.
func secret(steps []step) error {
	switch first := steps[0].name; {
	case first == "data" || first == "stringData",
		len(steps) > 1 && first == "metadata" && steps[1].name == "annotations" &&
			(len(steps) == 2 || steps[2].name == "kubectl.kubernetes.io/last-applied-configuration"):
		return fmt.Errorf("path %q: the content of secrets cannot be a facet", canonical(steps))
	}
	return nil
}

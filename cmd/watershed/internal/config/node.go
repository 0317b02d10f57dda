// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// value is the value of a setting in a file.
type value struct {
	at    Position
	text  string
	items []string // of a list
}

// assign sets the value of a setting. Its type has been checked.
func (v *value) assign(k *Key) error {
	if k.kind() == list {
		return k.slice().Replace(v.items)
	}
	if err := k.Flag.Value.Set(v.text); err != nil {
		return fmt.Errorf("want %s, found %q", k.kind(), v.text)
	}
	return nil
}

// reader reads nodes of a file and collects errors.
type reader struct {
	name     string
	problems Problems
}

func (r *reader) add(at Position, format string, args ...any) {
	r.problems = append(r.problems, &Problem{Where: at.String(), Text: fmt.Sprintf(format, args...)})
}

func (r *reader) at(n *yaml.Node) Position {
	return Position{File: r.name, Line: n.Line, Column: n.Column}
}

// scalarOrList returns a value of a type, nil after an error.
func (r *reader) scalarOrList(n *yaml.Node, path string, want kind) *value {
	v := &value{at: r.at(n), text: n.Value}
	if want != list {
		if !isOf(n, want) {
			r.add(v.at, "%s: want %s, found %s", path, want, found(n))
			return nil
		}
		return v
	}
	if n.Kind != yaml.SequenceNode {
		r.add(v.at, "%s: want %s, found %s", path, want, found(n))
		return nil
	}
	v.items = []string{}
	good := true
	for i, item := range n.Content {
		item = resolve(item)
		if !isOf(item, text) {
			r.add(r.at(item), "%s[%d]: want %s, found %s", path, i, text, found(item))
			good = false
		}
		v.items = append(v.items, item.Value)
	}
	if !good {
		return nil
	}
	return v
}

// isOf reports whether a node is a scalar of a type.
func isOf(n *yaml.Node, want kind) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	switch want {
	case boolean:
		return n.Tag == "!!bool" && (n.Value == "true" || n.Value == "false")
	case number:
		_, err := strconv.ParseInt(n.Value, 10, 64)
		return n.Tag == "!!int" && err == nil
	default:
		return n.Tag == "!!str"
	}
}

// found describes a node for errors.
func found(n *yaml.Node) string {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "no value: remove the key to use the default"
	case "!!str":
		return fmt.Sprintf("the text %q", n.Value)
	default:
		return fmt.Sprintf("%s: a text would be in quotes", n.Value)
	}
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

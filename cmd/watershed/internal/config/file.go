// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file is a parsed file.
type file struct {
	values     map[*Key]*value
	clusters   []Cluster
	clustersAt Position
}

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

// parser reads the node tree of a file and collects its errors.
type parser struct {
	name     string
	set      *Set
	file     *file
	problems Problems
}

// yamlLine matches the line in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse reads a file. It returns what it could read, and all errors.
func parse(name string, content []byte, s *Set) (*file, Problems) {
	p := &parser{name: name, set: s, file: &file{values: map[*Key]*value{}}}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		p.add(Position{File: name}, "the file is empty: it begins with apiVersion: %s and kind: %s", APIVersion, Kind)
		return p.file, p.problems
	case err != nil:
		p.syntax(err)
		return p.file, p.problems
	}
	root := document.Content[0]
	p.mapping(root, "")
	p.header(root)
	switch err := decoder.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		p.syntax(err)
	default:
		p.add(p.at(&more), "the file has a second document: it may have one")
	}
	return p.file, p.problems
}

// syntax adds an error of the YAML parser.
func (p *parser) syntax(err error) {
	at := Position{File: p.name}
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		at.Line, _ = strconv.Atoi(found[1]) // "" is 0
	}
	p.add(at, "%s", yamlLine.ReplaceAllString(err.Error(), ""))
}

func (p *parser) add(at Position, format string, args ...any) {
	p.problems = append(p.problems, &Problem{Where: at.String(), Text: fmt.Sprintf(format, args...)})
}

func (p *parser) at(n *yaml.Node) Position {
	return Position{File: p.name, Line: n.Line, Column: n.Column}
}

// header checks the version and the kind.
func (p *parser) header(root *yaml.Node) {
	for _, h := range []struct{ key, want string }{{"apiVersion", APIVersion}, {"kind", Kind}} {
		i := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == h.key })
		switch {
		case root.Kind != yaml.MappingNode:
			return
		case i < 0 || i%2 == 1:
			p.add(p.at(root), "%s is missing: add %s: %s", h.key, h.key, h.want)
		case resolve(root.Content[i+1]).Value != h.want:
			p.add(p.at(root.Content[i+1]), "%s: want %s, found %s", h.key, h.want, found(root.Content[i+1]))
		}
	}
}

// mapping reads the keys below a path, which is "" at the top.
func (p *parser) mapping(n *yaml.Node, path string) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		p.add(p.at(n), "%swant keys and values, found %s", prefix(path), found(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], resolve(n.Content[i+1])
		full := key.Value
		if path != "" {
			full = path + "." + key.Value
		}
		if seen[key.Value] {
			p.add(p.at(key), "%s occurs twice", full)
			continue
		}
		seen[key.Value] = true
		p.entry(key, child, full)
	}
}

// entry reads one key and what belongs to it.
func (p *parser) entry(key, child *yaml.Node, full string) {
	k := p.set.byPath(full)
	switch {
	case full == "apiVersion", full == "kind":
	case full == "clusters":
		p.readClusters(key, child)
	case k != nil:
		if v := p.scalarOrList(child, full, k.kind()); v != nil {
			p.file.values[k] = v
		}
	case slices.Contains(p.set.sections(), full):
		p.mapping(child, full)
	default:
		p.add(p.at(key), "unknown key %s%s", full, p.hint(full))
	}
}

// hint returns which key was probably meant.
func (p *parser) hint(full string) string {
	path, name := "", full
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		path, name = full[:i+1], full[i+1:]
	}
	if near := nearest(name, p.set.children(path)); near != "" {
		return ": did you mean " + path + near + "?"
	}
	plain := func(text string) string { return strings.ToLower(strings.ReplaceAll(text, "-", "")) }
	for _, k := range p.set.keys {
		last := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if plain(name) == plain(last) || plain(name) == plain(k.Flag.Name) {
			return ": did you mean " + k.Path + "?"
		}
	}
	return ""
}

// sections returns the paths that have keys below them.
func (s *Set) sections() []string {
	var all []string
	for _, k := range s.keys {
		for i, c := range k.Path {
			if c == '.' && !slices.Contains(all, k.Path[:i]) {
				all = append(all, k.Path[:i])
			}
		}
	}
	return all
}

// children returns the names of the keys directly below a path, which is "" or ends with a dot.
func (s *Set) children(path string) []string {
	var all []string
	if path == "" {
		all = append(all, "apiVersion", "kind", "clusters")
	}
	for _, k := range s.keys {
		rest, ok := strings.CutPrefix(k.Path, path)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// scalarOrList returns a value of a type, nil after an error.
func (p *parser) scalarOrList(n *yaml.Node, path string, want kind) *value {
	v := &value{at: p.at(n), text: n.Value}
	if want != list {
		if !isOf(n, want) {
			p.add(v.at, "%s: want %s, found %s", path, want, found(n))
			return nil
		}
		return v
	}
	if n.Kind != yaml.SequenceNode {
		p.add(v.at, "%s: want %s, found %s", path, want, found(n))
		return nil
	}
	v.items = []string{}
	good := true
	for i, item := range n.Content {
		item = resolve(item)
		if !isOf(item, text) {
			p.add(p.at(item), "%s[%d]: want %s, found %s", path, i, text, found(item))
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

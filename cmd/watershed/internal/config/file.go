// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// APIVersion and Kind are the first two keys of a file.
const (
	APIVersion = "config.watershed.dev/v1alpha1"
	Kind       = "Configuration"
)

// file is a parsed file.
type file struct {
	values     map[*Key]*value
	clusters   []Cluster
	clustersAt Position
}

// parser reads the keys of a file.
type parser struct {
	reader
	keys catalog
	file *file
}

// yamlLine matches the line in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// parse reads a file. It returns what it could read, and all errors.
func parse(name string, content []byte, keys catalog) (*file, Problems) {
	p := &parser{reader: reader{name: name}, keys: keys, file: &file{values: map[*Key]*value{}}}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF), err == nil && len(document.Content) == 0:
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
	k := p.keys.byPath(full)
	switch {
	case full == "apiVersion", full == "kind":
	case full == "clusters":
		p.file.clusters, p.file.clustersAt = p.clusters(child), p.at(key)
	case k != nil:
		if v := p.scalarOrList(child, full, k.kind()); v != nil {
			p.file.values[k] = v
		}
	case slices.Contains(p.keys.sections(), full):
		p.mapping(child, full)
	default:
		p.add(p.at(key), "unknown key %s%s", full, p.keys.hint(full))
	}
}

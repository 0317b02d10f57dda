// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package config

import (
	"slices"
	"strings"
)

// catalog has settings in the order of their declarations.
type catalog []*Key

// byFlag returns the setting of a flag, nil if there is none.
func (c catalog) byFlag(name string) *Key {
	i := slices.IndexFunc(c, func(k *Key) bool { return k.Flag.Name == name })
	if i < 0 {
		return nil
	}
	return c[i]
}

// byPath returns the setting of a key, nil if there is none.
func (c catalog) byPath(path string) *Key {
	i := slices.IndexFunc(c, func(k *Key) bool { return k.Path == path })
	if i < 0 {
		return nil
	}
	return c[i]
}

// sections returns the paths that have keys below them.
func (c catalog) sections() []string {
	var all []string
	for _, k := range c {
		for i, letter := range k.Path {
			if letter == '.' && !slices.Contains(all, k.Path[:i]) {
				all = append(all, k.Path[:i])
			}
		}
	}
	return all
}

// children returns the names of the keys directly below a path, which is "" or ends with a dot.
func (c catalog) children(path string) []string {
	var all []string
	if path == "" {
		all = append(all, "apiVersion", "kind", "clusters")
	}
	for _, k := range c {
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

// hint returns which key was probably meant.
func (c catalog) hint(full string) string {
	path, name := "", full
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		path, name = full[:i+1], full[i+1:]
	}
	if near := Nearest(name, c.children(path)); near != "" {
		return ": did you mean " + path + near + "?"
	}
	plain := func(text string) string { return strings.ToLower(strings.ReplaceAll(text, "-", "")) }
	for _, k := range c {
		last := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if plain(name) == plain(last) || plain(name) == plain(k.Flag.Name) {
			return ": did you mean " + k.Path + "?"
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"maps"
	"slices"

	"github.com/watershed-project/watershed/fleet/internal/upstream"
)

// aliases records which names of a directory lead to the same copy. The fleet's mu guards
// it.
type aliases struct {
	// names maps the other names of clusters to those of their members.
	names map[string]string
	// routes has the entries that lead to each member.
	routes map[string][]Entry
}

// copyOf returns a digest of the copy that an entry leads to, or "" if that is not known.
// Two scopes of one cluster are two copies.
func copyOf(e Entry, s *settings) string {
	route := upstream.Route(e.Config)
	if e.Err != nil || route == "" {
		return ""
	}
	return route + s.scopeOf(e).String()
}

// merge returns the entries to mirror. Of several that lead to one copy, it returns the
// one that is mirrored already or else the first. The names of the others become aliases,
// and their credentials are used if the server refuses those of the first.
func (a *aliases) merge(entries []Entry, members map[string]*Member, s *settings) []Entry {
	chosen := map[string]string{} // names, by copy
	for _, e := range entries {
		if m := members[e.Name]; m != nil && copyOf(e, s) != "" && copyOf(m.entry(), s) == copyOf(e, s) {
			chosen[copyOf(e, s)] = e.Name
		}
	}
	names, routes := map[string]string{}, map[string][]Entry{}
	var kept []Entry
	for _, e := range entries {
		name := e.Name
		if id := copyOf(e, s); id != "" {
			if chosen[id] == "" {
				chosen[id] = e.Name
			}
			name = chosen[id]
			routes[name] = append(routes[name], e)
		} else if to, ok := a.names[e.Name]; ok {
			name = to // an entry that cannot be read for now
		}
		if name == e.Name || !slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == name }) {
			kept = append(kept, e)
			continue
		}
		names[e.Name] = name
		if a.names[e.Name] != name {
			s.Logger.Info("two names refer to one cluster, which is mirrored once", "cluster", name, "alias", e.Name)
		}
	}
	a.names, a.routes = names, routes
	return kept
}

// assign passes the members their aliases and all entries that lead to them.
func (a *aliases) assign(members map[string]*Member) {
	others := map[string][]string{}
	for _, alias := range slices.Sorted(maps.Keys(a.names)) {
		others[a.names[alias]] = append(others[a.names[alias]], alias)
	}
	for name, m := range members {
		m.names.Store(&memberNames{others[name], a.routes[name]})
	}
}

// resolve returns the name of the member that a name leads to: the name itself, unless it
// is an alias.
func (a *aliases) resolve(name string) string {
	if to, ok := a.names[name]; ok {
		return to
	}
	return name
}

// memberNames has the names of the directory that lead to one member. It is replaced, not modified.
type memberNames struct {
	// aliases are the other names, and routes all entries that lead to the cluster, if there are
	// several.
	aliases []string
	routes  []Entry
}

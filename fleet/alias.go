// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"maps"
	"slices"

	"k8s.io/client-go/rest"
)

// aliases records which names of a directory lead to the same copy. The fleet's mu guards
// it.
type aliases struct {
	// names maps the other names of clusters to those of their members.
	names map[string]string
	// ways has the entries that lead to each member.
	ways map[string][]Entry
}

// routeOf returns a digest of the path to a server without the credentials: its address,
// its certificate authority and the proxy. Entries with equal digests are one cluster.
// The digest is empty if the configuration has functions, which cannot be compared.
func routeOf(cfg *rest.Config) string {
	if cfg == nil || cfg.Dial != nil || cfg.Transport != nil || cfg.WrapTransport != nil {
		return ""
	}
	route := &rest.Config{Host: identityOf(cfg).Endpoint, APIPath: cfg.APIPath, Proxy: cfg.Proxy}
	route.TLSClientConfig = rest.TLSClientConfig{Insecure: cfg.Insecure, ServerName: cfg.ServerName, CAFile: cfg.CAFile, CAData: cfg.CAData}
	digest, err := Access(route)
	if err != nil {
		return ""
	}
	return digest
}

// copyOf returns a digest of the copy that an entry leads to, or "" if that is not known.
// Two scopes of one cluster are two copies.
func copyOf(e Entry, s *settings) string {
	route := routeOf(e.Config)
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
	names, ways := map[string]string{}, map[string][]Entry{}
	var kept []Entry
	for _, e := range entries {
		name := e.Name
		if id := copyOf(e, s); id != "" {
			if chosen[id] == "" {
				chosen[id] = e.Name
			}
			name = chosen[id]
			ways[name] = append(ways[name], e)
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
	a.names, a.ways = names, ways
	return kept
}

// assign passes the members their aliases and all entries that lead to them.
func (a *aliases) assign(members map[string]*Member) {
	others := map[string][]string{}
	for _, alias := range slices.Sorted(maps.Keys(a.names)) {
		others[a.names[alias]] = append(others[a.names[alias]], alias)
	}
	for name, m := range members {
		m.known.mu.Lock()
		m.known.aliases, m.known.ways = others[name], a.ways[name]
		m.known.mu.Unlock()
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

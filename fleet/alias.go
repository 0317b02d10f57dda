// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"maps"
	"slices"

	"k8s.io/client-go/rest"
)

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

// routeOf returns a digest of the copy that an entry leads to, or "" if that is not
// known. Two scopes of one cluster are two copies.
func (f *Fleet) routeOf(e Entry) string {
	route := routeOf(e.Config)
	if e.Err != nil || route == "" {
		return ""
	}
	return route + f.scopeOf(e).String()
}

// mergeLocked returns the entries to mirror. Of several that lead to one cluster, it
// returns the one that is mirrored already or else the first. The names of the others
// become aliases, and their credentials are used if the server refuses those of the
// first.
func (f *Fleet) mergeLocked(entries []Entry) []Entry {
	chosen := map[string]string{} // names, by route
	for _, e := range entries {
		if m := f.members[e.Name]; m != nil && f.routeOf(e) != "" && f.routeOf(m.entry()) == f.routeOf(e) {
			chosen[f.routeOf(e)] = e.Name
		}
	}
	aliases, ways := map[string]string{}, map[string][]Entry{}
	var kept []Entry
	for _, e := range entries {
		name := e.Name
		if route := f.routeOf(e); route != "" {
			if chosen[route] == "" {
				chosen[route] = e.Name
			}
			name = chosen[route]
			ways[name] = append(ways[name], e)
		} else if to, ok := f.aliases[e.Name]; ok {
			name = to // an entry that cannot be read for now
		}
		if name == e.Name || !slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == name }) {
			kept = append(kept, e)
			continue
		}
		aliases[e.Name] = name
		if f.aliases[e.Name] != name {
			f.opts.Logger.Info("two names lead to one cluster, which is mirrored once", "cluster", name, "alias", e.Name)
		}
	}
	f.aliases, f.ways = aliases, ways
	return kept
}

// nameLocked passes the members their aliases and all entries that lead to them.
func (f *Fleet) nameLocked() {
	others := map[string][]string{}
	for _, alias := range slices.Sorted(maps.Keys(f.aliases)) {
		others[f.aliases[alias]] = append(others[f.aliases[alias]], alias)
	}
	for name, m := range f.members {
		m.known.mu.Lock()
		m.known.aliases, m.known.ways = others[name], f.ways[name]
		m.known.mu.Unlock()
	}
}

// detour makes a member whose credentials were refused use those of another name of its
// cluster, if it has one.
func (m *Member) detour(refused error) {
	if !isRefused(refused) {
		return
	}
	m.known.mu.Lock()
	ways := m.known.ways
	m.known.mu.Unlock()
	used := m.entry().Access
	at := slices.IndexFunc(ways, func(e Entry) bool { return e.Access == used })
	if len(ways) > 1 {
		e := ways[(at+1)%len(ways)]
		e.Name = m.name
		m.use(e)
	}
}

// resolve returns the name of the member that a name leads to: the name itself, unless it
// is an alias.
func (f *Fleet) resolve(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to, ok := f.aliases[name]; ok {
		return to
	}
	return name
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxConflicts limits how many entries an error lists.
const maxConflicts = 5

// ownership has the entries of a kubeconfig that belong to one server, by name.
type ownership struct{ clusters, contexts, users map[string]bool }

// ownedBy returns the entries of a server: its clusters, the contexts of these clusters, and
// the users of these contexts that no other context has.
func ownedBy(k *clientcmdapi.Config, owns func(*clientcmdapi.Cluster) bool) ownership {
	o := ownership{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for name, cluster := range k.Clusters {
		o.clusters[name] = owns(cluster)
	}
	shared := map[string]bool{}
	for name, context := range k.Contexts {
		o.contexts[name] = o.clusters[context.Cluster]
		o.users[context.AuthInfo] = true
		shared[context.AuthInfo] = shared[context.AuthInfo] || !o.contexts[name]
	}
	for name, other := range shared {
		o.users[name] = !other
	}
	return o
}

// others returns the entries of a kubeconfig that do not belong to the server.
func (o ownership) others(k *clientcmdapi.Config) []string {
	return slices.Concat(
		foreign("context", k.Contexts, o.contexts),
		foreign("cluster", k.Clusters, o.clusters),
		foreign("user", k.AuthInfos, o.users),
	)
}

// foreign returns the entries that are not owned, as "kind name".
func foreign[V any](kind string, entries map[string]V, owned map[string]bool) []string {
	var found []string
	for name := range entries {
		if !owned[name] {
			found = append(found, fmt.Sprintf("%s %q", kind, name))
		}
	}
	slices.Sort(found)
	return found
}

// mergeKubeconfig adds entries to a kubeconfig. It replaces entries of the same names that
// belong to the same server, and returns an error if others have one of the names. The
// current context stays, if there is one.
func mergeKubeconfig(base, added *clientcmdapi.Config, owns func(*clientcmdapi.Cluster) bool) error {
	if conflicts := conflicts(base, added, owns); len(conflicts) > 0 {
		return fmt.Errorf("%s would be replaced, and does not belong to this server: choose another --prefix, or "+
			"delete it", summary(conflicts))
	}
	maps.Copy(base.Clusters, added.Clusters)
	maps.Copy(base.Contexts, added.Contexts)
	maps.Copy(base.AuthInfos, added.AuthInfos)
	if base.CurrentContext == "" {
		base.CurrentContext = added.CurrentContext
	}
	return nil
}

// conflicts returns the entries of base that added would replace and that do not belong to
// the server. A user with the same content does not conflict.
func conflicts(base, added *clientcmdapi.Config, owns func(*clientcmdapi.Cluster) bool) []string {
	replaced := clientcmdapi.NewConfig()
	for name := range added.Clusters {
		if cluster, ok := base.Clusters[name]; ok {
			replaced.Clusters[name] = cluster
		}
	}
	for name := range added.Contexts {
		if context, ok := base.Contexts[name]; ok {
			replaced.Contexts[name] = context
		}
	}
	for name, user := range added.AuthInfos {
		if old, ok := base.AuthInfos[name]; ok && !sameUser(old, user) {
			replaced.AuthInfos[name] = old
		}
	}
	return ownedBy(base, owns).others(replaced)
}

// sameUser reports whether two users are written in the same way.
func sameUser(a, b *clientcmdapi.AuthInfo) bool {
	text := func(user *clientcmdapi.AuthInfo) []byte {
		k := clientcmdapi.NewConfig()
		k.AuthInfos[""] = user
		text, _ := clientcmd.Write(*k)
		return text
	}
	one := text(a)
	return one != nil && bytes.Equal(one, text(b))
}

// summary joins the first entries of a list.
func summary(entries []string) string {
	if n := len(entries); n > maxConflicts {
		return fmt.Sprintf("%s and %d more", strings.Join(entries[:maxConflicts], ", "), n-maxConflicts)
	}
	return strings.Join(entries, ", ")
}

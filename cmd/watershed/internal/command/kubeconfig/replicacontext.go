// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
)

// fleetContext is the name of the context of all clusters together.
const fleetContext = "fleet"

// replicaContext is a context for a cluster of a server, or for all of them together.
type replicaContext struct {
	// name is the name of the user's context, or of the cluster, without the prefix.
	name string
	// cluster is the name of the cluster, "" for all of them together.
	cluster    string
	namespace  string
	credential *apiclient.Credential
	// written means that the credential is from an entry that this command has written, so
	// that its name can begin with the prefix already.
	written bool
}

// newFleetContext returns the context of all clusters together.
func newFleetContext(c *apiclient.Credential) replicaContext {
	return replicaContext{name: fleetContext, credential: c}
}

// path returns the path of the context's API at the server.
func (c replicaContext) path() string {
	if c.cluster == "" {
		return "/fleet"
	}
	return "/clusters/" + url.PathEscape(c.cluster)
}

// entry returns the name of the context in a kubeconfig. A cluster that is called fleet has
// another name than the fleet.
func (c replicaContext) entry(prefix string) string {
	if c.cluster != "" && c.name == fleetContext {
		return prefix + "clusters/" + c.name
	}
	return prefix + c.name
}

// user returns the name of the context's user in a kubeconfig. The prefix is not added a second
// time, unless the kubeconfig has another user of that name.
func (c replicaContext) user(prefix string, k *clientcmdapi.Config) string {
	if name := c.credential.Name; c.written && strings.HasPrefix(name, prefix) {
		if other := k.AuthInfos[name]; other == nil || sameUser(other, c.credential.User) {
			return name
		}
	}
	return prefix + c.credential.Name
}

// newKubeconfig returns a kubeconfig with contexts of a server. Preferred is the name of the
// user's current context.
func newKubeconfig(
	t *apiclient.Target, prefix string, contexts []replicaContext, preferred string,
) *clientcmdapi.Config {
	k := clientcmdapi.NewConfig()
	for _, c := range contexts {
		name, user := c.entry(prefix), c.user(prefix, k)
		k.Clusters[name] = t.Cluster(c.path(), c.credential)
		k.AuthInfos[user] = c.credential.User
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: c.namespace}
	}
	k.CurrentContext = cmp.Or(currentContext(prefix, contexts, preferred), firstContext(k))
	return k
}

// currentContext returns the fleet, or the cluster if there is only one. Without the fleet
// it returns the preferred context, "" if that is not among the contexts.
func currentContext(prefix string, contexts []replicaContext, preferred string) string {
	var fleet, cluster, wanted string
	for _, c := range contexts {
		switch name := c.entry(prefix); {
		case c.cluster == "":
			fleet = name
		case c.name == preferred:
			cluster, wanted = name, name
		default:
			cluster = name
		}
	}
	switch {
	case fleet == "":
		return wanted
	case len(contexts) == 2:
		return cluster
	}
	return fleet
}

// firstContext returns the first context of a kubeconfig by name, "" if there is none.
func firstContext(k *clientcmdapi.Config) string {
	for _, name := range slices.Sorted(maps.Keys(k.Contexts)) {
		return name
	}
	return ""
}

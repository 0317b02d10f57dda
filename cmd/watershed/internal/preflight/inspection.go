// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package preflight

import (
	"strings"
	"time"

	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// The names of the checks of a cluster, in their order.
const (
	checkName           = "name"
	checkCredentials    = "credentials"
	checkConnection     = "connection"
	checkAuthentication = "authentication"
	checkDiscovery      = "discovery"
	checkPermissions    = "permissions"
	checkReviews        = "reviews"
	checkCallers        = "callers"
	checkGroup          = "group"
	checkStability      = "stability"
	checkClock          = "clock"
	checkSpeed          = "speed"
	checkVersion        = "version"
)

// Options tune the checks.
type Options struct {
	// Fleet are the options of the fleet that serve would have.
	Fleet *fleet.Options
	// Named are patterns of resources that the user has named. A cluster must serve those
	// without a star.
	Named []string
	// PassThrough means that requests of callers are passed on to the cluster.
	PassThrough bool
	// GroupCluster is the cluster with the Leases of the replica group, "" without one, and
	// GroupNamespace their namespace.
	GroupCluster, GroupNamespace string
	// Open means that other users than the owner can connect. They need reviews.
	Open bool
	// Observe is how long a watch must stay open. Default: that is not checked.
	Observe time.Duration
	// Program is the name of the command.
	Program string
	// Contexts are the kubeconfig contexts of clusters, by the name of the cluster.
	Contexts map[string]string
	// Kubeconfig is the file with the contexts, "" if kubectl reads it by default.
	Kubeconfig string
}

// inspection is the checks of one cluster.
type inspection struct {
	results
	opts    *Options
	cluster *kube.Cluster
	clients reviewClients
	entry   fleet.Entry
	probe   fleet.Probe
}

// rootOf returns an error on one line.
func rootOf(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// reviewClients are clients for reviews of own rights, with the credentials of a cluster.
type reviewClients struct {
	authentication authenticationclient.AuthenticationV1Interface
	authorization  authorizationclient.AuthorizationV1Interface
}

// newReviewClients returns clients. They share the connections of the cluster.
func newReviewClients(c *kube.Cluster) (reviewClients, error) {
	config := c.Config()
	config.QPS = -1 // missing limits concurrency instead
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	authentication, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return reviewClients{}, err
	}
	authorization, err := authorizationclient.NewForConfig(config)
	return reviewClients{authentication, authorization}, err
}

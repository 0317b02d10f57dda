// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"time"

	"k8s.io/client-go/rest"
)

// Poll sets how often the files of a source are checked, and returns the source.
func Poll[D *Kubeconfig | *KubeconfigDir | *InCluster](d D, interval time.Duration) D {
	switch d := any(d).(type) {
	case *Kubeconfig:
		d.poller.interval = interval
	case *KubeconfigDir:
		d.poller.interval = interval
	case *InCluster:
		d.poller.interval = interval
	}
	return d
}

// LoadInCluster replaces the function that returns the configuration of the service
// account.
func LoadInCluster(c *InCluster, load func() (*rest.Config, error)) { c.load = load }

// AccessPluginConfig returns the configuration for a cluster with a plugin.
var AccessPluginConfig = (*AccessPlugin).config

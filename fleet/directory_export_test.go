// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "k8s.io/client-go/rest"

// LoadInCluster replaces what tells how the cluster that the program runs in is
// reached.
func LoadInCluster(c *InCluster, load func() (*rest.Config, error)) { c.load = load }

// AccessPluginConfig is how a plugin's cluster is reached.
var AccessPluginConfig = (*AccessPlugin).config

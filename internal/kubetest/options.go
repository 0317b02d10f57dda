// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"errors"
	"fmt"
)

// Options configure a cluster. The zero value is etcd and kube-apiserver with access
// control, and an administrator as the only user.
type Options struct {
	// Name is the cluster's name in its kubeconfig. Default: kubetest.
	Name string

	// Dir is an existing, empty folder for data, logs and keys, which Close keeps.
	// Default: a temporary folder that is removed with the cluster.
	Dir string

	// Users can log in with a token of their own, see [Cluster.UserConfig]. They have no
	// rights until [Cluster.Grant] or their groups allow something.
	Users []User

	// Nodes is the number of simulated nodes. With at least one the cluster is complete:
	// controllers and scheduler run, and pods become Running. Default: 0.
	Nodes int

	// Kubelet makes the nodes' kubelet endpoints work: logs, exec, attach and port-forward.
	// It needs at least one node. Default: kube-apiserver cannot reach the nodes.
	Kubelet *Kubelet

	// Durable makes etcd sync to disk before it responds. That costs time and is needed
	// only if the machine itself may go down. Default: off.
	Durable bool

	// APIServerArgs are passed to kube-apiserver after all others.
	APIServerArgs []string

	// env is added to the environment of kube-apiserver.
	env []string
}

// User is a user that may log in.
type User struct {
	Name   string
	Groups []string
}

// admin is the user behind [Cluster.Config].
const admin = "admin"

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Name == "" {
		d.Name = "kubetest"
	}
	return d
}

func (o *Options) validate() error {
	if o.Nodes < 0 {
		return fmt.Errorf("options: %d nodes", o.Nodes)
	}
	if o.Kubelet != nil && o.Nodes == 0 {
		return errors.New("options: a kubelet without nodes")
	}
	seen := map[string]bool{admin: true}
	for _, u := range o.Users {
		if u.Name == "" {
			return errors.New("options: a user without a name")
		}
		if seen[u.Name] {
			return fmt.Errorf("options: user %s is there twice", u.Name)
		}
		seen[u.Name] = true
	}
	return nil
}

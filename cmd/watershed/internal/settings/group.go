// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"cmp"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// podNamespace is the file with the namespace of the pod.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Group are the flags of the replica group.
type Group struct {
	Name, Cluster string
	namespace     string
}

func (o *Group) declare(in config.Section) {
	in.String(&o.Name, "group.name", "replica-group", "", "the `name` of the group of replicas that this one "+
		"belongs to: no two of them issue the same version below /fleet (default none)")
	in.String(&o.Cluster, "group.cluster", "group-cluster", "", "the `cluster` that has the Leases of the replicas; "+
		"one of those that are mirrored")
	in.String(&o.namespace, "group.namespace", "group-namespace", "",
		"the `namespace` of the Leases (default that of the pod, else default)")
}

// validate refuses one flag without the other, and names that a Lease cannot have.
func (o *Group) validate() error {
	switch {
	case o.Name != "" && o.Cluster == "":
		return config.About("replica-group", "--replica-group needs --group-cluster, which names the cluster of the "+
			"Leases")
	case o.Name == "" && o.Cluster != "":
		return config.About("group-cluster", "--group-cluster has no effect without --replica-group: add it")
	case o.Name == "" && o.namespace != "":
		return config.About("group-namespace", "--group-namespace has no effect without --replica-group: add it")
	case o.Name == "":
		return nil
	}
	for _, f := range []struct{ flag, value string }{{"replica-group", o.Name}, {"group-namespace", o.Namespace()}} {
		if problems := validation.IsDNS1123Label(f.value); len(problems) > 0 {
			return config.About(f.flag, "--%s %s: %s", f.flag, f.value, strings.Join(problems, "; "))
		}
	}
	return nil
}

// Namespace returns the namespace of the Leases.
func (o *Group) Namespace() string {
	own, err := os.ReadFile(podNamespace)
	if err != nil {
		own = nil // not in a pod
	}
	return cmp.Or(o.namespace, strings.TrimSpace(string(own)), "default")
}

// Open returns this process as one of the replicas of its group, nil without a group. Find returns
// a cluster of the fleet. Other replicas find the address and the key in the Lease, "" if there are none.
func (o *Group) Open(
	find func(name string) (*fleet.Member, bool), address, key string, logger *slog.Logger,
) *group.Replica {
	if o.Name == "" {
		return nil
	}
	connection := func() *kube.Cluster {
		if m, ok := find(o.Cluster); ok {
			return m.Cluster()
		}
		return nil
	}
	return group.New(group.Options{
		Group: o.Name, Namespace: o.Namespace(), Cluster: connection, Address: address, Key: key, Logger: logger,
	})
}

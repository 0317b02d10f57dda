// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/etcd"
)

// Compact compacts etcd: every resourceVersion that was returned before the call is too
// old for etcd afterwards. It returns the oldest one that is not.
//
// The API server answers watches and lists of old versions from its own memory if it can.
// So a reader receives 410 Expired only for resources without a watch cache: those in a
// flag like --watch-cache-sizes=configmaps#0, or all with --watch-cache=false, in
// [Options.APIServerArgs]. For others use [Cluster.Expire].
func (c *Cluster) Compact(ctx context.Context) (revision int64, err error) {
	err = c.withEtcd(func(client *etcd.Client) error {
		// The compacted revision stays readable, and so does a watch that begins after
		// the revision before it. Two writes move both past all revisions that a reader
		// can have.
		for range 2 {
			var err error
			if revision, err = client.Put(ctx, etcd.KeyValue{Key: "/kubetest/compaction"}); err != nil {
				return err
			}
		}
		return client.Compact(ctx, revision)
	})
	if err != nil {
		return 0, fmt.Errorf("compact etcd: %w", err)
	}
	return revision, nil
}

// Erase removes all objects of a resource directly from etcd, bypassing the API server.
func (c *Cluster) Erase(ctx context.Context, resource schema.GroupResource) error {
	err := c.withEtcd(func(client *etcd.Client) error {
		prefix := storagePrefix(resource)
		return client.Delete(ctx, prefix, etcd.PrefixEnd(prefix))
	})
	if err != nil {
		return fmt.Errorf("erase %s: %w", resource, err)
	}
	return nil
}

// Put writes one value directly into etcd, bypassing the API server.
func (c *Cluster) Put(ctx context.Context, key string, value []byte) error {
	err := c.withEtcd(func(client *etcd.Client) error {
		_, err := client.Put(ctx, etcd.KeyValue{Key: key, Value: value})
		return err
	})
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// Delete removes one value directly from etcd, bypassing the API server.
func (c *Cluster) Delete(ctx context.Context, key string) error {
	err := c.withEtcd(func(client *etcd.Client) error { return client.Delete(ctx, key, "") })
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Expire makes every resourceVersion that was returned before the call expire for all
// readers. It compacts etcd, and kills and starts the API server, which breaks all
// connections and clears its watch caches. It returns the oldest resourceVersion that is
// left, when the API server is ready again.
func (c *Cluster) Expire(ctx context.Context) (revision int64, err error) {
	revision, err = c.Compact(ctx)
	if err != nil {
		return 0, err
	}
	c.APIServer.Kill()
	return revision, c.APIServer.Start(ctx)
}

// storagePrefix returns the prefix of a resource's keys in etcd. Built-in resources have
// no group in their keys, and some have the names that they had before version 1.
func storagePrefix(r schema.GroupResource) string {
	switch r {
	case schema.GroupResource{Resource: "nodes"}:
		return "/registry/minions/"
	case schema.GroupResource{Resource: "services"}:
		return "/registry/services/specs/"
	case schema.GroupResource{Resource: "endpoints"}:
		return "/registry/services/endpoints/"
	case schema.GroupResource{Resource: "replicationcontrollers"}:
		return "/registry/controllers/"
	case schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}:
		return "/registry/ingress/"
	}
	if scheme.Scheme.IsGroupRegistered(r.Group) {
		return "/registry/" + r.Resource + "/"
	}
	return "/registry/" + r.Group + "/" + r.Resource + "/"
}

// withEtcd calls f with a new client, because the connection of an older one does not
// survive when a test kills etcd.
func (c *Cluster) withEtcd(f func(*etcd.Client) error) error {
	client := etcd.New(c.EtcdURL())
	defer client.Close()
	return f(client)
}

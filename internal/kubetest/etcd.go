// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// withEtcd calls f with a new client: after etcd was killed, a long-lived client waits
// longer and longer before it retries.
func (c *Cluster) withEtcd(ctx context.Context, f func(*clientv3.Client) error) error {
	client, err := clientv3.New(clientv3.Config{
		Context:     ctx,
		Endpoints:   []string{c.EtcdURL()},
		DialTimeout: 10 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("etcd %s: %w", c.EtcdURL(), err)
	}
	defer client.Close()
	return f(client)
}

// Compact compacts etcd: every resourceVersion that was returned before the call is too
// old for etcd afterwards. It returns the oldest one that is not.
//
// The API server answers watches and lists of old versions from its own memory if it can.
// So a reader receives 410 Expired only for resources without a watch cache: those in a
// flag like --watch-cache-sizes=configmaps#0, or all with --watch-cache=false, in
// [Options.APIServerArgs]. For others use [Cluster.Expire].
func (c *Cluster) Compact(ctx context.Context) (revision int64, err error) {
	err = c.withEtcd(ctx, func(client *clientv3.Client) error {
		// The compacted revision stays readable, and so does a watch that begins after
		// the revision before it. Two writes move both past all revisions that a reader
		// can have.
		for range 2 {
			put, err := client.Put(ctx, "/kubetest/compaction", "")
			if err != nil {
				return err
			}
			revision = put.Header.Revision
		}
		_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("compact etcd: %w", err)
	}
	return revision, nil
}

// Erase removes all objects of a resource directly from etcd, bypassing the API server.
func (c *Cluster) Erase(ctx context.Context, resource schema.GroupResource) error {
	err := c.withEtcd(ctx, func(client *clientv3.Client) error {
		_, err := client.Delete(ctx, storagePrefix(resource), clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return fmt.Errorf("erase %s: %w", resource, err)
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

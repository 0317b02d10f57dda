// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command prometheus runs Prometheus' service discovery for Kubernetes, in all roles, with a
// kubeconfig. Whenever targets change, it prints all of them as one line of JSON, in an order
// that depends only on the targets.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

// roles are all roles of the service discovery.
var roles = []kubernetes.Role{
	kubernetes.RoleNode, kubernetes.RolePod, kubernetes.RoleService, kubernetes.RoleEndpoint,
	kubernetes.RoleEndpointSlice, kubernetes.RoleIngress,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "prometheus: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	registry := prometheus.NewRegistry()
	metrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	manager := discovery.NewManager(ctx, logger, registry, metrics, discovery.Updatert(200*time.Millisecond))
	ended := make(chan error, 1)
	go func() { ended <- manager.Run() }()
	configs := map[string]discovery.Configs{}
	for _, role := range roles {
		c := kubernetes.DefaultSDConfig
		c.KubeConfig, c.Role = kubeconfig, role
		c.AttachMetadata.Node = role == kubernetes.RolePod || role == kubernetes.RoleEndpointSlice
		configs[string(role)] = discovery.Configs{&c}
	}
	if err := manager.ApplyConfig(configs); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for {
		select {
		case <-ctx.Done():
			<-ended
			return nil
		case all := <-manager.SyncCh():
			if err := out.Encode(ordered(all)); err != nil {
				return err
			}
		}
	}
}

// group is a group of targets.
type group struct {
	Source  string
	Labels  model.LabelSet
	Targets []model.LabelSet
}

// ordered returns the groups of each role in order.
func ordered(all map[string][]*targetgroup.Group) map[string][]group {
	result := map[string][]group{}
	for role, groups := range all {
		for _, g := range groups {
			targets := slices.Clone(g.Targets)
			slices.SortFunc(targets, func(a, b model.LabelSet) int { return cmp.Compare(a.String(), b.String()) })
			result[role] = append(result[role], group{g.Source, g.Labels, targets})
		}
		slices.SortFunc(result[role], func(a, b group) int { return cmp.Compare(a.Source, b.Source) })
	}
	return result
}

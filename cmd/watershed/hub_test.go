// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// hubManifests have two clusters of Cluster API and a ClusterProfile with a Secret for
// the consumer "ours". The format's argument is a kubeconfig in base64.
const hubManifests = `
apiVersion: v1
kind: Secret
metadata: {name: prod-kubeconfig, namespace: one, labels: {cluster.x-k8s.io/cluster-name: prod}}
type: cluster.x-k8s.io/secret
data: {value: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: test-kubeconfig, namespace: two, labels: {cluster.x-k8s.io/cluster-name: test}}
type: cluster.x-k8s.io/secret
data: {value: %[1]s}
---
apiVersion: v1
kind: Secret
metadata: {name: profile, namespace: one, labels: {x-k8s.io/cluster-profile: inventory, x-k8s.io/cluster-inventory-consumer: ours}}
data: {Config: %[1]s}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: inventory, namespace: one}
spec: {clusterManager: {name: test}}
---
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata: {name: inventory, namespace: two}
spec: {clusterManager: {name: test}}
`

// startHub runs a hub with hubManifests. The profile in namespace one has the access
// provider "files".
func startHub(t *testing.T) *kubetest.Cluster {
	t.Helper()
	hub := kubetest.Start(t, &kubetest.Options{Name: "hub"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	kubectl := func(input string, args ...string) {
		t.Helper()
		if _, err := hub.KubectlInput(ctx, input, args...); err != nil {
			t.Fatal(err)
		}
	}
	member, err := os.ReadFile(commandtest.WriteKubeconfig(t, map[string]string{"only": ""}))
	if err != nil {
		t.Fatal(err)
	}
	kubectl("", "create", "namespace", "one")
	kubectl("", "create", "namespace", "two")
	kubectl("", "create", "-f", "../../fleet/directory/testdata/clusterprofiles.yaml")
	kubectl("", "wait", "--for=condition=Established", "crd/clusterprofiles.multicluster.x-k8s.io", "--timeout=1m")
	kubectl(fmt.Sprintf(hubManifests, base64.StdEncoding.EncodeToString(member)), "create", "-f", "-")
	kubectl("", "patch", "clusterprofile", "inventory", "-n", "one", "--subresource=status", "--type=merge",
		"-p", `{"status": {"accessProviders": [{"name": "files", "cluster": {"server": "https://127.0.0.1:1"}}]}}`)
	return hub
}

// TestSources_hub has every flag of the sources that read a hub.
func TestSources_hub(t *testing.T) {
	hub := startHub(t)
	at := func(args ...string) []string {
		return append(args, "--hub-kubeconfig", hub.Kubeconfig(), "--hub-context", hub.Name())
	}
	commandtest.FollowSources(t, commandtest.Named("one.prod", "two.test"), at("--cluster-api")...)
	commandtest.FollowSources(t, commandtest.Named("one.prod"), at("--cluster-api", "--hub-namespace", "one")...)

	// reaches returns a condition: the profile in namespace one has credentials.
	reaches := func(command string) func(map[string]fleet.Entry) bool {
		return func(m map[string]fleet.Entry) bool {
			e := m["one.inventory"]
			if e.Config == nil {
				return false
			}
			exec := e.Config.ExecProvider
			return command == "" && exec == nil || exec != nil && exec.Command == command
		}
	}
	profiles, consumer := "--cluster-profiles", "--cluster-profile-consumer"
	commandtest.FollowSources(t, reaches(""), at(profiles, consumer, "ours")...)
	refused := func(m map[string]fleet.Entry) bool {
		return len(m) == 2 && m["one.inventory"].Err != nil &&
			strings.Contains(m["one.inventory"].Err.Error(), `consumer "theirs"`)
	}
	commandtest.FollowSources(t, refused, at(profiles, consumer, "theirs")...)
	commandtest.FollowSources(t, commandtest.Named("two.inventory"),
		at(profiles, consumer, "ours", "--hub-namespace", "two")...)
	plugins := filepath.Join(t.TempDir(), "plugins.json")
	expect.NoError(t, os.WriteFile(plugins,
		[]byte(
			`{"providers": [{"name": "files", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}}]}`,
		), 0o600))
	commandtest.FollowSources(t, reaches("plugin"), at(profiles, "--cluster-profile-provider-file", plugins)...)

	// Without flags the hub is the current context of the kubeconfig.
	t.Setenv("KUBECONFIG", hub.Kubeconfig())
	commandtest.FollowSources(t, commandtest.Named("one.prod"), "--cluster-api", "--hub-namespace", "one")
	all := commandtest.Named("a", "one.inventory", "one.prod", "two.inventory", "two.test")
	commandtest.FollowSources(t, all, "--cluster-api", profiles, consumer, "ours", "--kubeconfig-dir",
		commandtest.WriteKubeconfigs(t, "a"))

	s := &state.Dir{Path: t.TempDir()}
	_, stop := startServe(t, s, "--cluster-api", "--hub-namespace", "two")
	if _, ok := printedKubeconfig(t, s).Contexts[contextPrefix+"two.test"]; !ok {
		t.Error("serve --cluster-api does not serve the cluster of the hub")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

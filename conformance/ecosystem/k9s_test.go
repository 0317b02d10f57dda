// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// screen is a screen of k9s, with the keys that lead to it from any other. It contains want.
type screen struct {
	name, want string
	keys       []string
}

// list returns the screen of a resource in all namespaces.
func list(resource, want string) screen {
	return screen{name: resource, want: want, keys: []string{":" + resource + " all", "Enter"}}
}

var screens = []screen{
	list("pods", "db-0"), list("deployments", "paused"), list("services", "kubernetes"), list("nodes", "node-0"),
	list("namespaces", "shop"), list("events", "SuccessfulCreate"),
	list("configmaps", "settings"), list("secrets", "Opaque"), list("replicasets", "web-"), list("jobs", "migrate"),
	list("cronjobs", "report"), list("daemonsets", "agent"),
	list("statefulsets", "db"), list("crds", "Widget"), list("widgets", "three"), list("ingresses", "shop"),
	list("pvc", "shop"), list("clusterroles", "cluster-admin"),
	{"describe", "Tolerations", []string{":pods shop", "Enter", "WAIT", "d"}},
	{"yaml", "resourceVersion", []string{":statefulsets shop", "Enter", "WAIT", "y"}},
	{"logs", "line ", []string{":pods shop", "Enter", "WAIT", "l"}},
	{"xray", "web", []string{":xray deployments shop", "Enter"}},
	{"pulses", "Pods", []string{":pulses", "Enter"}},
	{"containers", "main", []string{":pods shop", "Enter", "WAIT", "Enter"}},
}

// terminals are terminals of tmux, one for each side.
type terminals struct {
	socket string
}

// k9s compares screens. Then it scales and deletes through the replica.
func k9s(t *testing.T, w *comparedCluster) {
	x := &terminals{socket: filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() { _, _ = x.tmux(context.WithoutCancel(t.Context()), "kill-server") })
	for _, s := range w.sides() {
		expect.NoError(t, x.start(t, w, s))
	}
	for _, screen := range screens {
		for _, s := range w.sides() {
			expect.NoError(t, x.send(t.Context(), s, screen.keys...))
		}
		w.compare(t, screen.name, screen.want, x.read)
		for _, s := range w.sides() {
			expect.NoError(t, x.send(t.Context(), s, "Escape"))
		}
	}
	x.live(t, w)
	x.scale(t, w)
	x.delete(t, w)
}

// k9sOfFleet compares lists of /fleet, for a fleet of one cluster, with those of the API server,
// without the menu: discovery of /fleet has only the verbs that read, so k9s hides the others.
// Secrets are not compared, because the replica does not mirror them. k9s requests tables of some
// resources, which have a column CLUSTER at /fleet.
func k9sOfFleet(t *testing.T, w *comparedCluster) {
	x := &terminals{socket: filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() { _, _ = x.tmux(context.WithoutCancel(t.Context()), "kill-server") })
	both := []*side{w.direct, w.fleet}
	for _, s := range both {
		expect.NoError(t, x.start(t, w, s))
	}
	for _, s := range both { // keys that arrive before the first list are lost
		expect.Eventually(t, settling, func() error { return x.shows(t.Context(), s, "db-0") })
	}
	body := func(ctx context.Context, s *side) (string, error) {
		text, err := x.read(ctx, s)
		_, text, _ = strings.Cut(text, "┌") // the frame below the menu
		return text, err
	}
	for _, screen := range screens {
		if screen.name == "secrets" || !strings.HasSuffix(screen.keys[0], " all") {
			continue
		}
		t.Run(screen.name, func(t *testing.T) {
			for _, s := range both {
				expect.NoError(t, x.send(t.Context(), s, screen.keys...))
			}
			expect.Eventually(t, settling, func() error {
				if screen.name == "widgets" || screen.name == "ingresses" {
					return errors.Join(x.shows(t.Context(), w.fleet, screen.want),
						x.shows(t.Context(), w.fleet, "CLUSTER"))
				}
				return same(t.Context(), w.direct, w.fleet, screen.want, body)
			})
		})
		for _, s := range both {
			expect.NoError(t, x.send(t.Context(), s, "Escape"))
		}
	}
}

// live opens a list, creates a pod that it contains, and deletes the pod.
func (x *terminals) live(t *testing.T, w *comparedCluster) {
	for _, s := range w.sides() {
		expect.NoError(t, x.send(t.Context(), s, ":pods bare", "Enter"))
	}
	w.compare(t, "live, empty", "pods(bare)[0]", x.read)
	w.kubectl(t, "run", "sudden", "-n", "bare", "--image=registry.example/sudden")
	w.compare(t, "live, created", "sudden", x.read)
	w.kubectl(t, "delete", "pod", "sudden", "-n", "bare", "--grace-period=0", "--force")
	w.compare(t, "live, deleted", "pods(bare)[0]", x.read)
}

// scale scales a deployment through the replica. Without --pass-through the screen shows
// the refusal.
func (x *terminals) scale(t *testing.T, w *comparedCluster) {
	keys := []string{
		":deployments stage", "Enter", "WAIT", "/web", "Enter", "WAIT", "s", "WAIT", "4", "Left", "BSpace", "Tab",
		"Enter",
	}
	t.Run("scale, refused", func(t *testing.T) {
		expect.NoError(t, x.send(t.Context(), w.plain, keys...))
		expect.Eventually(t, settling, func() error { return x.shows(t.Context(), w.plain, "read replica") })
	})
	t.Run("scale", func(t *testing.T) {
		expect.NoError(t, x.send(t.Context(), w.passing, keys...))
		expect.Eventually(t, settling, func() error { return x.shows(t.Context(), w.passing, "4/4") })
		expect.Equal(t, w.kubectl(t, "get", "deployment", "web", "-n", "stage", "-o", "jsonpath={.spec.replicas}"), "4")
	})
}

// delete deletes a pod through the replica.
func (x *terminals) delete(t *testing.T, w *comparedCluster) {
	t.Run("delete", func(t *testing.T) {
		expect.NoError(t, x.send(t.Context(), w.passing, ":pods stage", "Enter", "WAIT", "/done", "Enter", "WAIT",
			"C-d", "WAIT", "Tab", "Enter"))
		expect.Eventually(t, settling, func() error { return x.shows(t.Context(), w.passing, "pods(stage)[0]") })
		expect.Equal(t, w.kubectl(t, "get", "pod", "done", "-n", "stage", "--ignore-not-found"), "")
	})
}

// shows returns an error if the screen of a side does not contain a text.
func (x *terminals) shows(ctx context.Context, s *side, text string) error {
	screen, err := x.read(ctx, s)
	if err == nil && !strings.Contains(screen, text) {
		err = fmt.Errorf("%s does not show %q: %s", s.name, text, screen)
	}
	return err
}

// start starts k9s for a side.
func (x *terminals) start(t *testing.T, w *comparedCluster, s *side) error {
	t.Helper()
	home := t.TempDir()
	config := filepath.Join(home, "config.yaml")
	if err := os.WriteFile(config, []byte("k9s:\n  skipLatestRevCheck: true\n"), 0o600); err != nil {
		return err
	}
	_, err := x.tmux(t.Context(), "new-session", "-d", "-x", "230", "-y", "140", "-s", s.name, "env",
		"K9S_CONFIG_DIR="+home, "K9S_LOGS_DIR="+home,
		w.program("k9s"), "--kubeconfig", s.kubeconfig, "--all-namespaces", "--splashless", "--logoless")
	return err
}

// send types keys into the terminal of a side.
func (x *terminals) send(ctx context.Context, s *side, keys ...string) error {
	for _, key := range keys {
		if key == "WAIT" {
			time.Sleep(2 * time.Second) // k9s updates its tables each two seconds
			continue
		}
		if _, err := x.tmux(ctx, "send-keys", "-t", s.name, key); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the pace of a person: k9s drops keys that come faster
	}
	return nil
}

// read returns the screen of a side.
func (x *terminals) read(ctx context.Context, s *side) (string, error) {
	out, err := x.tmux(ctx, "capture-pane", "-p", "-t", s.name)
	return masked(out), err
}

func (x *terminals) tmux(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// readerAccount is the name of a service account.
const readerAccount = "system:serviceaccount:default:reader"

// TestController runs controllers of controller-runtime on the replica, with a user's own
// credentials of each kind. The user may read pods of one namespace.
func TestController(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ctrl.SetLogger(logr.Discard())
	users, err := authority.New("users")
	expect.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	expect.NoError(t, os.WriteFile(file, users.PEM(), 0o600))
	c := kubetest.Start(t, &kubetest.Options{
		Name:          clusterName,
		Users:         []kubetest.User{{Name: "jane"}},
		APIServerArgs: []string{"--client-ca-file=" + file},
	})
	for _, user := range []string{"jane", readerAccount} {
		expect.NoError(t, c.Grant(ctx, user, "default", rbacv1.PolicyRule{
			APIGroups: []string{""},
			Resources: []string{"pods"},
			Verbs:     []string{"get", "list", "watch"},
		}))
	}
	kubectl(ctx, t, c, "run", "first", "--image=image")
	replica, err := restConfig(newReplica(t, c))
	expect.NoError(t, err)

	var controllers []*controller
	for kind, set := range credentials(ctx, t, c, users) {
		cfg := rest.AnonymousClientConfig(replica)
		set(cfg)
		controllers = append(controllers, startController(ctx, t, kind, cfg))
	}
	for _, c := range controllers {
		c.await(ctx, t, "default/first")
		var nodes corev1.NodeList
		if err := c.GetAPIReader().List(ctx, &nodes); !apierrors.IsForbidden(err) {
			t.Errorf("%s: list nodes: %v", c.kind, err)
		}
	}
	kubectl(ctx, t, c, "run", "second", "--image=image")
	for _, c := range controllers {
		c.await(ctx, t, "default/second")
		t.Logf("controller-runtime with %s: ok", c.kind)
	}
}

func kubectl(ctx context.Context, t *testing.T, c *kubetest.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(ctx, args...)
	expect.NoError(t, err)
	return strings.TrimSpace(out)
}

// credentials returns functions that add credentials to a configuration, one for each kind.
func credentials(
	ctx context.Context, t *testing.T, c *kubetest.Cluster, users *authority.Authority,
) map[string]func(*rest.Config) {
	t.Helper()
	token := c.UserConfig("jane").BearerToken
	kubectl(ctx, t, c, "create", "serviceaccount", "reader")
	requested := kubectl(ctx, t, c, "create", "token", "reader")
	cert, key, err := users.Client("jane")
	expect.NoError(t, err)
	plugin := filepath.Join(t.TempDir(), "plugin")
	script := fmt.Sprintf("#!/bin/sh\necho "+
		"'{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}'\n", token)
	expect.NoError(t, os.WriteFile(plugin, []byte(script), 0o700))
	return map[string]func(*rest.Config){
		"token":           func(cfg *rest.Config) { cfg.BearerToken = token },
		"service-account": func(cfg *rest.Config) { cfg.BearerToken = requested },
		"certificate":     func(cfg *rest.Config) { cfg.CertData, cfg.KeyData = cert, key },
		"plugin": func(cfg *rest.Config) {
			cfg.ExecProvider = &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: plugin,
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		},
		"acting": func(cfg *rest.Config) {
			cfg.BearerToken, cfg.Impersonate.UserName = c.Config().BearerToken, "jane"
		},
	}
}

// controller is a manager with a controller that reports the pods it reconciles.
type controller struct {
	ctrl.Manager
	kind string // of the credentials
	pods chan string
}

// startController starts a controller of the pods of one namespace, which ends with the test.
func startController(ctx context.Context, t *testing.T, kind string, cfg *rest.Config) *controller {
	t.Helper()
	again := true // a controller of this name exists
	m, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	c := &controller{Manager: m, kind: kind, pods: make(chan string, 100)}
	expect.NoError(t, ctrl.NewControllerManagedBy(m).For(&corev1.Pod{}).Complete(c))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: the manager ends with %v", kind, err)
		}
	})
	return c
}

// Reconcile implements [reconcile.Reconciler].
func (c *controller) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := c.GetClient().Get(ctx, r.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, err
	}
	c.pods <- r.String()
	return reconcile.Result{}, nil
}

// await returns when the controller has reconciled a pod.
func (c *controller) await(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case pod := <-c.pods:
			if pod == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("%s: %s is not reconciled", c.kind, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var podReader = rbacv1.PolicyRule{
	APIGroups: []string{""},
	Resources: []string{"pods"},
	Verbs:     []string{"get", "list", "watch"},
}

// writeCertificate writes a self-signed certificate for a user, and its key. It is its own
// authority.
func writeCertificate(t *testing.T, user, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// userContext is a context of a kubeconfig with credentials of one kind, and their user.
type userContext struct{ name, user string }

// account is the name of the service account that [writeUsers] creates.
const account = "system:serviceaccount:default:reader"

// writeUsers writes a kubeconfig with contexts of the user jane of a cluster, one for each
// kind of credentials, and one of a service account, which it creates. Both may read pods.
// The last context is one that the cluster does not accept. Each context is called like the
// kind of its credentials.
func writeUsers(
	ctx context.Context, t *testing.T, k *kubetest.Cluster, dir string,
) (path string, credentials []userContext) {
	t.Helper()
	for _, user := range []string{"jane", account} {
		if err := k.Grant(ctx, user, "default", podReader); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Kubectl(ctx, "create", "serviceaccount", "reader"); err != nil {
		t.Fatal(err)
	}
	requested, err := k.Kubectl(ctx, "create", "token", "reader")
	if err != nil {
		t.Fatal(err)
	}
	token := k.UserConfig("jane").BearerToken
	plugin := fmt.Sprintf("#!/bin/sh\necho "+
		"'{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"%s\"}}'\n", token)
	for name, content := range map[string]string{"token": token, "plugin": plugin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: k.URL()}
	for _, c := range []struct {
		name, user string
		clientcmdapi.AuthInfo
	}{
		{"token", "jane", clientcmdapi.AuthInfo{Token: token}},
		{"token-file", "jane", clientcmdapi.AuthInfo{TokenFile: "token"}},
		{"service-account", account, clientcmdapi.AuthInfo{Token: strings.TrimSpace(requested)}},
		{"certificate", "jane", clientcmdapi.AuthInfo{ClientCertificate: "jane.crt", ClientKey: "jane.key"}},
		{"plugin", "jane", clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "./plugin",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}},
		{"acting", "jane", clientcmdapi.AuthInfo{Token: k.Config().BearerToken, Impersonate: "jane"}},
		{"stranger", "", clientcmdapi.AuthInfo{Token: "wrong"}},
	} {
		config.AuthInfos[c.name] = &c.AuthInfo
		config.Contexts[c.name] = &clientcmdapi.Context{Cluster: "c", AuthInfo: c.name, Namespace: "default"}
		credentials = append(credentials, userContext{c.name, c.user})
	}
	path = filepath.Join(dir, "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path, credentials
}

// TestKubeconfig_ofAUser serves a real cluster. A user with rights of her own reads it with
// kubectl, with every kind of credentials, from the kubeconfig that the command writes.
func TestKubeconfig_ofAUser(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, "jane", filepath.Join(dir, "jane.crt"), filepath.Join(dir, "jane.key"))
	k := kubetest.Start(t, &kubetest.Options{
		Name: "real", Users: []kubetest.User{{Name: "jane"}},
		APIServerArgs: []string{"--client-ca-file=" + filepath.Join(dir, "jane.crt")},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	createPod(ctx, t, k, "first")
	s := &state.Dir{Path: filepath.Join(dir, "state")}
	startServe(t, s, "--kubeconfig", k.Kubeconfig(), "--context", k.Name(), "--home", k.Name())
	running, err := s.Server()
	if err != nil {
		t.Fatal(err)
	}
	users, credentials := writeUsers(ctx, t, k, dir)
	file := filepath.Join(dir, "replica.yaml")
	args := []string{
		"kubeconfig", "--server", "https://" + running.Address, "--certificate-authority", s.AuthorityFile(),
		"--kubeconfig", users, "--context", "plugin", "--write", file,
	}
	for _, c := range credentials {
		args = append(args, "--map", c.name+"="+k.Name())
	}
	var trouble string
	expect.Eventually(t, time.Minute, func() error { // the cluster may not have synced
		_, trouble, err = commandParts(t, args...)
		if text, _ := os.ReadFile(file); err == nil && !strings.Contains(string(text), "watershed-fleet") {
			err = fmt.Errorf("no context of the fleet; stderr:\n%s", trouble)
		}
		return err
	})
	if !strings.Contains(trouble, `context "stranger" is left out`) || strings.Count(trouble, "\n") != 1 {
		t.Errorf("stderr:\n%s", trouble)
	}
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, k.KubectlPath(), append([]string{
			"--kubeconfig", file, "--cache-dir", filepath.Join(dir, "cache"),
		}, args...)...).CombinedOutput()
		return string(out), err
	}
	for _, c := range credentials {
		name := c.name
		if name == "stranger" {
			continue
		}
		at := "--context=" + contextPrefix + name
		if out, err := kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", at); err != nil ||
			out != c.user {
			t.Errorf("%s: the user is %q, %v", name, out, err)
		}
		expect.Eventually(t, time.Minute, func() error {
			if out, err := kubectl("get", "pods", "-o", "name", at); err != nil || out != "pod/first\n" {
				return fmt.Errorf("%s: get pods: %q, %w", name, out, err)
			}
			return nil
		})
		if out, err := kubectl("get", "nodes", at); err == nil ||
			!strings.Contains(out, `User "`+c.user+`" cannot list resource "nodes"`) {
			t.Errorf("%s: get nodes: %q, %v", name, out, err)
		}
	}
	if out, err := kubectl("get", "pods", "-n", "default", "-o", "name", "--context",
		contextPrefix+"fleet"); err != nil || out != "pod/first\n" {
		t.Errorf("fleet: get pods: %q, %v", out, err)
	}
	testOwner(t, k, s, kubectl, file)
}

// testOwner adds the contexts of the owner to a kubeconfig. The owner has the rights of the
// kubeconfig that is mirrored.
func testOwner(t *testing.T, k *kubetest.Cluster, s *state.Dir, kubectl func(...string) (string, error), file string) {
	t.Helper()
	if _, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path, "--prefix", "mine-", "--merge", "--write",
		file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine-" + k.Name(), "mine-fleet", contextPrefix + "token"} {
		if out, err := kubectl("get", "pods", "-n", "default", "-o", "name", "--context", name); err != nil ||
			out != "pod/first\n" {
			t.Errorf("%s: get pods: %q, %v", name, out, err)
		}
	}
	if out, err := kubectl("get", "namespaces", "-o", "name", "--context", "mine-"+k.Name()); err != nil ||
		!strings.Contains(out, "namespace/kube-system\n") {
		t.Errorf("get namespaces: %q, %v", out, err)
	}
}

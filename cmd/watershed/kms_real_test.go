// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/kms/vault"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// sealed is a cluster with secrets, and a server that stores them with the keys of a vault.
type sealed struct {
	t       *testing.T
	client  kubernetes.Interface
	vault   *vault.Vault
	state   *state.Dir
	data    string
	flags   []string
	secrets map[string]string // passwords by name
}

// write creates or replaces a secret.
func (s *sealed) write(name, password string) {
	s.t.Helper()
	secrets := s.client.CoreV1().Secrets("default")
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string][]byte{"password": []byte(password)},
	}
	var err error
	if _, ok := s.secrets[name]; ok {
		_, err = secrets.Update(s.t.Context(), o, metav1.UpdateOptions{})
	} else {
		_, err = secrets.Create(s.t.Context(), o, metav1.CreateOptions{})
	}
	expect.NoError(s.t, err)
	s.secrets[name] = password
}

// run starts the server, waits until it has both resources of the cluster, changes a secret,
// waits until the files have that, and stops the server. It returns how many complete states
// the server has read.
func (s *sealed) run() (lists int) {
	s.t.Helper()
	_, stop := startServe(s.t, s.state, s.flags...)
	target, err := apiclient.LocalTarget(*s.state, "")
	expect.NoError(s.t, err)
	owner := readAs(s.t, target.URL, target.Owner, target.Authority)
	follow := func() {
		expect.Soon(s.t, "the server has the secrets", func() bool {
			code, _, body := owner.get("/clusters/a/api/v1/namespaces/default/secrets", nil)
			var list corev1.SecretList
			if code != http.StatusOK || json.Unmarshal(body, &list) != nil {
				return false
			}
			got := map[string]string{}
			for i := range list.Items {
				got[list.Items[i].Name] = string(list.Items[i].Data["password"])
			}
			return maps.Equal(got, s.secrets)
		})
	}
	follow()
	expect.Soon(s.t, "the server has the configmaps", func() bool {
		code, _, _ := owner.get("/clusters/a/api/v1/configmaps", nil)
		return code == http.StatusOK
	})
	s.write("token-0", fmt.Sprint("written-", time.Now().UnixNano()))
	follow()
	expect.Soon(s.t, "the files are current", func() bool {
		return s.metric(owner, "watershed_storage_behind_resources") == 0 &&
			s.metric(owner, "watershed_storage_queued_bytes") == 0
	})
	lists = s.metric(owner, "watershed_relists_total")
	expect.NoError(s.t, stop())
	return lists
}

// metric returns the sum of all series of a metric.
func (s *sealed) metric(owner *pastReader, name string) (sum int) {
	s.t.Helper()
	code, _, metrics := owner.get("/metrics", nil)
	expect.Equal(s.t, code, http.StatusOK) // without metrics, the files would seem to be current
	for line := range strings.Lines(string(metrics)) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.ContainsRune("{ ", rune(rest[0])) {
			var n float64
			_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
			expect.NoError(s.t, err)
			sum += int(n)
		}
	}
	return sum
}

// inFiles returns the name of a file that contains a password.
func (s *sealed) inFiles() (found string) {
	s.t.Helper()
	size := 0
	expect.NoError(s.t, filepath.WalkDir(s.data, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		size += len(content)
		for _, password := range s.secrets {
			if bytes.Contains(content, []byte(password)) ||
				bytes.Contains(content, []byte(base64.StdEncoding.EncodeToString([]byte(password)))) {
				found = path
			}
		}
		return err
	}))
	if size < 1000 {
		s.t.Errorf("the files have %d bytes", size)
	}
	return found
}

// TestKMS_real stores the secrets of a real cluster with a KMS plugin whose key is replaced,
// and then destroyed.
func TestKMS_real(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{Name: "a"})
	s := &sealed{
		t: t, client: kubernetes.NewForConfigOrDie(c.Config()), vault: vault.Start(t),
		state: &state.Dir{Path: t.TempDir()},
		data:  filepath.Join(t.TempDir(), "data"), secrets: map[string]string{},
	}
	for i := range 5 {
		s.write(fmt.Sprint("token-", i), fmt.Sprintf("correct horse battery staple %d", i))
	}
	s.flags = []string{
		"--kubeconfig", c.Kubeconfig(), "--context", c.Name(), "--resources", "configmaps,secrets", "--home", c.Name(),
		"--data-dir", s.data, "--data-kms", s.vault.Endpoint,
	}
	if lists := s.run(); lists < 2 {
		t.Errorf("first start: %d complete states were read", lists)
	}
	for _, step := range []struct {
		name   string
		before func()
		lists  int
	}{
		{"restart", func() {}, 0},
		{"key replaced", func() { s.vault.Rotate("second") }, 0},
		{"old key destroyed", func() { s.vault.Destroy("first") }, 1},
		{"restart with the new key", func() {}, 0},
	} {
		step.before()
		if lists := s.run(); lists != step.lists {
			t.Errorf("%s: %d complete states were read, want %d", step.name, lists, step.lists)
		}
		if file := s.inFiles(); file != "" {
			t.Errorf("%s: a password is in %s", step.name, file)
		}
	}
	s.vault.Set("broken", nil)
	out, err := command(t.Context(), append([]string{
		"serve", "--state-dir", s.state.Path, "--listen", "127.0.0.1:0",
	}, s.flags...)...)
	if err == nil || !strings.Contains(err.Error(), "--data-kms: ") ||
		!strings.Contains(err.Error(), "not healthy: broken") {
		t.Errorf("with a plugin that is not healthy: %v\n%s", err, out)
	}
}

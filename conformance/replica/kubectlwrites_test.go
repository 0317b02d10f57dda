// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/authority"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// slowScripts are the scripts that wait for controllers again and again. They run with the flag
// -slow only.
var slowScripts = []string{"rollout", "sets"}

var slowFlag = flag.Bool("slow", false, "TestWrites also runs the scripts that take minutes")

// helmVariable is the name of the environment variable that makes a missing helm an error.
const helmVariable = "WATERSHED_HELM"

// writing is a cluster, and a replica of it that passes requests on and is late.
type writing struct {
	cluster *kubetest.Cluster
	process *program.Process
	// users signs client certificates that the cluster accepts, and origin is the address
	// of the cluster that the replica uses.
	users  *authority.Authority
	origin string
	// csr is a request for a certificate, in PEM and base64.
	csr string
}

// startWriting starts a complete cluster with a metrics API, and watershed serve.
func startWriting(t *testing.T) *writing {
	t.Helper()
	users, err := authority.New("users")
	expect.NoError(t, err)
	dir := t.TempDir()
	expect.NoError(t, os.WriteFile(filepath.Join(dir, "users.pem"), users.PEM(), 0o600))
	w := &writing{users: users, csr: certificateRequest(t), cluster: kubetest.Start(t, &kubetest.Options{
		Name: "one", Nodes: 1, APIServerArgs: []string{"--client-ca-file=" + filepath.Join(dir, "users.pem")},
		Users: []kubetest.User{{Name: "writer", Groups: []string{"system:masters"}}, {Name: "editor"}},
	})}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	serveMetrics(ctx, t, w.cluster)
	lagging := startLagging(t, w.cluster)
	w.origin = lagging.Host
	kubeconfig := filepath.Join(dir, "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(
		*kubeconfigFor(lagging.Host, lagging.CAData, "",
			map[string]*clientcmdapi.AuthInfo{"one": {Token: lagging.BearerToken}}), kubeconfig,
	))
	flags := []string{"--kubeconfig", kubeconfig, "--context", "one", "--home", "one", "--pass-through"}
	for _, pattern := range mirrored {
		flags = append(flags, "--resources", pattern)
	}
	w.process, err = program.Start(ctx, dir, flags...)
	expect.NoError(t, err)
	t.Cleanup(func() {
		w.process.Stop()
		if t.Failed() {
			t.Log(w.process.Tail())
		}
	})
	return w
}

// kubeconfigFor returns a kubeconfig with a context for each user, called like the user. That
// of writer is current, if there is one.
func kubeconfigFor(
	server string, ca []byte, namespace string, users map[string]*clientcmdapi.AuthInfo,
) *clientcmdapi.Config {
	k := clientcmdapi.NewConfig()
	k.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	for name, user := range users {
		k.AuthInfos[name] = user
		k.Contexts[name] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: name, Namespace: namespace}
	}
	k.CurrentContext = "writer"
	return k
}

// certificateRequest returns a request for a client certificate.
func certificateRequest(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	expect.NoError(t, err)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// access returns the addresses of the API server and of the replica. With
// WATERSHED_SUBJECT=server, both are the API server.
func (w *writing) access() (direct, passed *rest.Config) {
	if os.Getenv(subjectVariable) == "server" {
		return w.cluster.Config(), w.cluster.Config()
	}
	direct, passed = w.cluster.Config(), w.process.Config()
	passed.Host += "/clusters/" + w.cluster.Name()
	return direct, passed
}

// newSide returns a side with the access of a configuration, without its user. Users have
// contexts: writer, editor, certificate, owner, and stranger, which the cluster does not know.
func (w *writing) newSide(t *testing.T, at *rest.Config, namespace string) *side {
	t.Helper()
	dir := t.TempDir()
	writer := w.cluster.UserConfig("writer").BearerToken
	cert, key, err := w.users.Client(certificateUser)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), at.CAData, 0o600))
	expect.NoError(t, clientcmd.WriteToFile(*kubeconfigFor(at.Host, at.CAData, namespace,
		map[string]*clientcmdapi.AuthInfo{
			"writer": {Token: writer}, "editor": {Token: w.cluster.UserConfig("editor").BearerToken},
			"stranger": {Token: "stranger"}, "owner": {Token: w.process.Token},
			"certificate": {ClientCertificateData: cert, ClientKeyData: key},
		}), filepath.Join(dir, "kubeconfig")))
	s := &side{namespace: namespace, programs: map[string]string{"kubectl": w.cluster.KubectlPath()}}
	if set, err := binaries.Load(); err == nil {
		s.programs["helm"] = set.Helm.Path
	}
	if s.programs["curl"], err = exec.LookPath("curl"); err != nil {
		t.Log("curl is not installed: it is not tried")
	}
	s.env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+filepath.Join(dir, "kubeconfig"),
		"KUBECACHEDIR="+filepath.Join(dir, "cache"),
		"KUBE_EDITOR=sed -i s/before/after/", "HELM_CACHE_HOME=", "HELM_CONFIG_HOME=", "HELM_DATA_HOME=")
	files := filepath.Join(dir, "files")
	access := fmt.Sprintf("--noproxy '*' --cacert %s -H 'Authorization: Bearer %s' -w '%%{stderr}%%{http_code} "+
		"%%{content_type}'", filepath.Join(dir, "ca.pem"), writer)
	s.fill = strings.NewReplacer("{ns}", namespace, "{dir}", files, "{server}", at.Host, "{curl}", access, "{csr}",
		w.csr)
	s.plain = strings.NewReplacer(files, "DIR", at.Host, "SERVER", namespace, "NS")
	expect.NoError(t, s.writeFiles(files))
	return s
}

// run runs a script on both sides.
func (w *writing) run(t *testing.T, name, script string) {
	began := time.Now()
	direct, passed := w.access()
	equal := runScript(t, w.newSide(t, direct, "direct-"+name), w.newSide(t, passed, "passed-"+name), script)
	t.Logf("%d commands print the same, in %.1fs", equal, time.Since(began).Seconds())
}

// TestWrites runs kubectl, helm and curl at the API server and at a replica that passes
// requests on, with the token of a user. Both sides must print the same, reads that follow a
// write must show it, and the objects must be equal at the end.
func TestWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	w := startWriting(t)
	var workers sync.WaitGroup
	names := make(chan string)
	for range 4 {
		workers.Go(func() {
			for name := range names {
				t.Run(name, func(t *testing.T) {
					if _, err := exec.LookPath("curl"); err != nil && name == "curl" {
						t.Skip(err)
					}
					w.run(t, name, writeScripts[name])
				})
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(writeScripts)) {
		if *slowFlag || !slices.Contains(slowScripts, name) {
			names <- name
		}
	}
	close(names)
	workers.Wait()
	t.Run("helm", func(t *testing.T) {
		set, err := binaries.Load()
		expect.NoError(t, err)
		if _, err := os.Stat(set.Helm.Path); err != nil && os.Getenv(helmVariable) != "required" {
			t.Skip("helm is not built: run make helm")
		}
		w.run(t, "helm", helmScript)
	})
	t.Run("wide", func(t *testing.T) { w.run(t, "wide", wideScript) })
	t.Run("conflict", w.testConflict)
	if os.Getenv(subjectVariable) != "server" {
		t.Run("refusals", w.testRefusals)
	}
}

// testConflict checks that a user which reads an object after a conflict does not read the
// version that caused the conflict: its next attempt would fail again.
func (w *writing) testConflict(t *testing.T) {
	direct, passed := w.access()
	direct.BearerToken = w.cluster.UserConfig("writer").BearerToken
	passed.BearerToken = direct.BearerToken
	other, err := kubernetes.NewForConfig(w.cluster.Config())
	expect.NoError(t, err)
	for i, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		c := rest.CopyConfig(passed)
		c.ContentType = contentType
		user, err := kubernetes.NewForConfig(c)
		expect.NoError(t, err)
		maps := user.CoreV1().ConfigMaps("default")
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("conflict-%d", i)},
		}, metav1.CreateOptions{})
		expect.NoError(t, err)
		for _, patch := range []bool{false, true} {
			if m, err = maps.Get(t.Context(), m.Name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err = other.CoreV1().ConfigMaps("default").Patch(t.Context(), m.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"other":"%t"}}`, patch), metav1.PatchOptions{})
			expect.NoError(t, err)
			if patch {
				_, err = maps.Patch(t.Context(), m.Name, types.MergePatchType,
					fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"data":{"mine":""}}`, m.ResourceVersion),
					metav1.PatchOptions{})
			} else {
				_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
			}
			if !apierrors.IsConflict(err) {
				t.Fatalf("%s, patch %t: %v, want a conflict", contentType, patch, err)
			}
			got, err := maps.Get(t.Context(), m.Name, metav1.GetOptions{})
			expect.NoError(t, err)
			if got.ResourceVersion == m.ResourceVersion {
				t.Errorf("%s, patch %t: version %s is read again after its conflict", contentType, patch,
					got.ResourceVersion)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// folderVariable is the environment variable with the folder of the programs.
const folderVariable = "WATERSHED_ECOSYSTEM"

// clusterName is the name of the cluster in all kubeconfigs.
const clusterName = "one"

// patience is the timeout for operations that normally take seconds, on a busy machine.
const patience = 2 * time.Minute

// comparedCluster is a cluster with objects of many kinds, and the sides from which it can be read.
type comparedCluster struct {
	// folder has the programs, and dir the files of the test.
	folder, dir string
	cluster     *kubetest.Cluster
	// direct is kube-apiserver. passing is a replica with --pass-through, and plain one
	// without. Replicas have the default flags otherwise, and the cluster as their home. fleet
	// is /fleet of the replica "passing".
	direct, passing, plain, fleet *side
}

// side is one server, as the user "writer" sees it.
type side struct {
	name       string
	kubeconfig string
	config     *rest.Config
}

// TestEcosystem compares each program on all sides.
func TestEcosystem(t *testing.T) {
	folder := os.Getenv(folderVariable)
	if testing.Short() || folder == "" {
		t.Skipf("needs the programs of docs/ecosystem.md: %s is not set", folderVariable)
	}
	w := newComparedCluster(t, folder)
	for _, p := range []struct {
		name string
		run  func(*testing.T, *comparedCluster)
	}{
		{"kube-state-metrics", kubeStateMetrics}, {"popeye", popeye}, {"stern", stern},
		{"kubernetes-mcp-server", mcpServer},
		{"headlamp-server", headlamp}, {"k9s", k9s}, {"k9s of the fleet", k9sOfFleet},
	} {
		t.Run(p.name, func(t *testing.T) {
			program, _, _ := strings.Cut(p.name, " ")
			if _, err := os.Stat(w.program(program)); err != nil {
				t.Fatal(err)
			}
			p.run(t, w)
		})
	}
}

func newComparedCluster(t *testing.T, folder string) *comparedCluster {
	t.Helper()
	w := &comparedCluster{folder: folder, dir: t.TempDir()}
	w.cluster = kubetest.Start(t, &kubetest.Options{
		Name: clusterName, Nodes: 3, Kubelet: &kubetest.Kubelet{}, Users: []kubetest.User{{Name: "writer"}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, w.cluster.Grant(ctx, "writer", "", rbacv1.PolicyRule{
		Verbs:     []string{"*"},
		APIGroups: []string{"*"},
		Resources: []string{"*"},
	},
		rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}))
	w.populate(t)
	binary := filepath.Join(w.dir, "watershed")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/watershed")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build watershed: %v: %s", err, out)
	}
	w.direct = w.newSide(t, "direct", w.cluster.URL(), w.cluster.Config().CAData)
	w.passing = w.serve(ctx, t, binary, "passing", "--pass-through")
	w.plain = w.serve(ctx, t, binary, "plain")
	root := strings.TrimSuffix(w.passing.config.Host, "/clusters/"+clusterName)
	w.fleet = w.newSide(t, "fleet", root+"/fleet", w.passing.config.CAData)
	return w
}

// program returns the path of a program.
func (w *comparedCluster) program(name string) string { return filepath.Join(w.folder, name) }

// sides returns the sides with the API of the cluster.
func (w *comparedCluster) sides() []*side { return []*side{w.direct, w.passing, w.plain} }

// kubectl runs kubectl as the administrator of the cluster.
func (w *comparedCluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := w.cluster.Kubectl(ctx, args...)
	expect.NoError(t, err)
	return out
}

// populate creates objects of many kinds, and waits until the pods run.
func (w *comparedCluster) populate(t *testing.T) {
	t.Helper()
	for _, step := range []string{
		"00-namespaces 05-before", "10-core 20-workloads 30-network 40-storage 60-types", "70-custom",
	} {
		args := []string{"create"}
		for name := range strings.FieldsSeq(step) {
			args = append(args, "-f", filepath.Join("..", "replica", "testdata", "population", name+".yaml"))
		}
		w.kubectl(t, args...)
		if strings.Contains(step, "60-types") {
			w.kubectl(t, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
		}
	}
	for _, what := range []string{"deployment/web", "statefulset/db", "daemonset/agent"} {
		w.kubectl(t, "rollout", "status", "-n", "shop", what, "--timeout=100s")
	}
	for i := range 20 {
		expect.NoError(t, w.cluster.AppendLog(fmt.Sprintf("line %d of the past", i)))
	}
}

// serve starts a replica, and returns when it has read the cluster.
func (w *comparedCluster) serve(ctx context.Context, t *testing.T, binary, name string, flags ...string) *side {
	t.Helper()
	state := filepath.Join(w.dir, name+"-state")
	p := start(t, binary, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--state-dir", state, "--kubeconfig", w.cluster.Kubeconfig(), "--context",
		clusterName, "--home", clusterName,
	}, flags...)...)
	var s *side
	err := expect.Until(ctx, func() error {
		if err := p.running(); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, binary, "kubeconfig", "--prefix", "", "--state-dir", state).Output()
		if err != nil {
			return fmt.Errorf("watershed kubeconfig: %w", err)
		}
		k, err := clientcmd.Load(out)
		if err != nil {
			return err
		}
		if k.Clusters[clusterName] == nil {
			return errors.New("watershed kubeconfig: no clusters yet")
		}
		s = w.newSide(t, name, k.Clusters[clusterName].Server, k.Clusters[clusterName].CertificateAuthorityData)
		return s.get(ctx, "/readyz")
	})
	expect.NoError(t, err)
	return s
}

// newSide writes the kubeconfig of a side. All sides have the same names.
func (w *comparedCluster) newSide(t *testing.T, name, server string, ca []byte) *side {
	t.Helper()
	token := w.cluster.UserConfig("writer").BearerToken
	k := clientcmdapi.NewConfig()
	k.Clusters[clusterName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	k.AuthInfos["writer"] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts[clusterName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: "writer"}
	k.CurrentContext = clusterName
	s := &side{
		name: name, kubeconfig: filepath.Join(w.dir, name+".yaml"),
		config: &rest.Config{
			Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1,
		},
	}
	expect.NoError(t, clientcmd.WriteToFile(*k, s.kubeconfig))
	return s
}

// get returns an error if a path is not answered with 200.
func (s *side) get(ctx context.Context, path string) error {
	client, err := rest.HTTPClientFor(s.config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", path, s.name, answer.Status)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// deployVariable is the name of the environment variable that selects the tests of the files in
// deploy. They need helm, so they are not part of all test runs: "short" runs those that need
// no cluster, "full" all, and "write" writes the generated files instead of comparing them.
const deployVariable = "WATERSHED_DEPLOY"

const (
	chartDir = "../../deploy/helm/watershed"
	// chartRelease and chartNamespace are those of all renderings.
	chartRelease, chartNamespace = "watershed", "watershed"
)

// needsDeploy skips a test unless the environment selects it.
func needsDeploy(t *testing.T, modes ...string) {
	t.Helper()
	if !slices.Contains(modes, os.Getenv(deployVariable)) {
		t.Skipf("%s is not %s: run make chart or make deploy", deployVariable, strings.Join(modes, " or "))
	}
}

// chart runs helm for the chart.
type chart struct {
	helm, home string
	version    string // of Kubernetes: a helm of our build assumes an old one
	kubeconfig string // "" if no cluster is needed
}

func newChart(t *testing.T) *chart {
	t.Helper()
	t.Setenv(helmVariable, "required")
	set, err := binaries.Load()
	expect.NoError(t, err)
	return &chart{helm: helmPath(t), home: t.TempDir(), version: set.APIServer.Version}
}

// run returns the standard output of helm.
func (c *chart) run(ctx context.Context, args ...string) (string, error) {
	if c.kubeconfig != "" {
		args = append([]string{"--kubeconfig", c.kubeconfig}, args...)
	}
	cmd := exec.CommandContext(ctx, c.helm, args...)
	cmd.Env = append(os.Environ(), "HOME="+c.home, "HELM_CACHE_HOME=", "HELM_CONFIG_HOME=", "HELM_DATA_HOME=")
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return "", errors.New(strings.TrimSpace(trouble.String() + out.String()))
	}
	return out.String(), nil
}

// template returns the output of helm template.
func (c *chart) template(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, append([]string{
		"template", chartRelease, chartDir, "--namespace", chartNamespace, "--kube-version", c.version,
	}, args...)...)
}

// render returns the objects of the chart.
func (c *chart) render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := c.template(t.Context(), args...)
	expect.NoError(t, err)
	return parseManifests(t, text)
}

// parseManifests returns the objects in a text of YAML documents.
func parseManifests(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		expect.NoError(t, err)
		if len(o.Object) > 0 {
			all = append(all, &o)
		}
	}
}

// objectID identifies an object in lists and messages.
func objectID(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
}

// deploymentOf returns the Deployment among the objects. A StatefulSet is returned as the Deployment with
// the same pods.
func deploymentOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			var d appsv1.Deployment
			expect.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &d, true))
			return &d
		}
		if o.GetKind() == "StatefulSet" {
			var s appsv1.StatefulSet
			expect.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &s, true))
			return &appsv1.Deployment{ObjectMeta: s.ObjectMeta, Spec: appsv1.DeploymentSpec{
				Replicas: s.Spec.Replicas, Selector: s.Spec.Selector, Template: s.Spec.Template,
			}}
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

// shapes returns the files of values that the chart is tested with.
func shapes(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	expect.NoError(t, err)
	if len(files) < 7 {
		t.Fatalf("only %d files of values: the test looks in the wrong place", len(files))
	}
	return files
}

// TestChart checks the chart with each file of values: helm accepts it, serve accepts its
// configuration file, and its rights are those that watershed rbac prints.
func TestChart(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	for _, values := range shapes(t) {
		t.Run(strings.TrimSuffix(filepath.Base(values), "-values.yaml"), func(t *testing.T) {
			if _, err := c.run(t.Context(), "lint", "--strict", chartDir, "--values", values, "--namespace",
				chartNamespace, "--kube-version", c.version); err != nil {
				t.Error(err)
			}
			objects := c.render(t, "--values", values)
			checkObjects(t, objects)
			d := deploymentOf(t, objects)
			checkRestricted(t, d)
			checkRights(t, objects, settingsOf(t, objects, d), d)
		})
	}
}

// checkObjects checks that each object is there once, and that those of a namespace name it.
func checkObjects(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range objects {
		id := objectID(o)
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		if o.GetLabels()["app.kubernetes.io/instance"] != chartRelease {
			t.Errorf("%s does not have the labels of the release", id)
		}
		if clusterScoped := strings.HasPrefix(o.GetKind(), "ClusterRole"); clusterScoped != (o.GetNamespace() == "") {
			t.Errorf("%s: a wrong namespace", id)
		}
	}
}

// checkRestricted checks the parts of the security context that the level "restricted" of
// Kubernetes does not require.
func checkRestricted(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	pod, container := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	if s := container.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		t.Error("the root file system can be written")
	}
	if s := pod.SecurityContext; s == nil || s.RunAsUser == nil || *s.RunAsUser == 0 {
		t.Error("the user is root, or that of the image")
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			t.Errorf("all users can read the Secret in volume %s", v.Name)
		}
	}
	for _, m := range container.VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("mount %s has a subPath: its files would not follow the Secret", m.Name)
		}
	}
}

// TestChart_auditLog checks that the state directory has room for all files of an audit log: the pod
// would be evicted otherwise.
func TestChart_auditLog(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	for set, want := range map[string]string{
		"config.audit.log=-":                            "64Mi",
		"config.audit.log=/var/lib/watershed/audit.log": "1164Mi",
		"config.audit.log=/audit,config.audit.maxSizeMiB=10,config.audit.maxBackups=0":   "74Mi",
		"config.audit.log=/audit,config.audit.maxSizeMiB=2000,config.audit.maxBackups=1": "4064Mi",
	} {
		volumes := deploymentOf(t, c.render(t, "--set", set)).Spec.Template.Spec.Volumes
		i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "state" })
		if got := volumes[i].EmptyDir.SizeLimit; got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: the state directory has %s, want %s", set, got, want)
		}
	}
}

// TestChart_refuses checks that values that cannot work are refused, with the reason.
func TestChart_refuses(t *testing.T) {
	needsDeploy(t, "short", "full")
	c := newChart(t)
	for _, v := range []struct {
		set  []string
		want string
	}{
		{[]string{"replica=1"}, "replica"},
		{[]string{"image.name=x"}, "name"},
		{[]string{"clusters.kubeconfigSecrets[0].secret=x"}, "secret"},
		{[]string{"replicas=two"}, "replicas"},
		{[]string{"service.port=70000"}, "/service/port"},
		{[]string{"clusters.inCluster.name=In/Cluster"}, "pattern"},
		{[]string{"clusters.inCluster.enabled=false"}, "there is nothing to mirror"},
		{[]string{"replicas=2"}, "tls.secretName"},
		{[]string{"replicas=2", "tls.secretName=x", "state.persistence.enabled=true"}, "state.persistence"},
		{[]string{"state.persistence.objects=true"}, "enable state.persistence"},
		{
			[]string{"state.persistence.enabled=true", "state.persistence.keySecret=x"},
			"no effect without state.persistence.objects",
		},
		{[]string{"tls.certManager.enabled=true"}, "issuerRef"},
		{[]string{"tls.certManager.enabled=true", "tls.secretName=x"}, "either"},
		{[]string{"config.fleet.users={a}"}, "config.fleet.home"},
		{[]string{"monitoring.serviceMonitor.enabled=true"}, "config.fleet.home"},
		{[]string{"config.mirror.namespace=x", "config.authorization.localRBAC={a}"}, "config.authorization.localRBAC"},
		{[]string{"serviceAccount.automountToken=false"}, "automountToken"},
		{[]string{"config.mirror.resources={*.apps}"}, "watershed rbac"},
		{[]string{"config.mirror.resource={pods}"}, "resource"},
		{[]string{"config.listen=:1"}, "listen"},
		{[]string{"config.sources.directories={/x}"}, "directories"},
		{[]string{"config.verifyEvery=often"}, "verifyEvery"},
		{[]string{"config.limits.historyMiB=0"}, "historyMiB"},
	} {
		var args []string
		for _, s := range v.set {
			args = append(args, "--set", s)
		}
		if _, err := c.template(t.Context(), args...); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v: %v, want something about %s", v.set, err, v.want)
		}
	}
}

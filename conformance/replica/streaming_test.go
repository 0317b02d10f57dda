// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// streaming is a cluster whose nodes have a kubelet, and a replica that passes requests on.
type streaming struct {
	*passing
	kubelet *kubelet
	// network is between the replica and the cluster. It is nil if there is no proxy.
	network *kubetest.Proxy
	// copied is the client for requests that the copy answers.
	copied *kubernetes.Clientset
}

// startBehind starts both, with a proxy between them.
func startBehind(t *testing.T, flags ...string) *streaming {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	c := &streaming{kubelet: startKubelet(t)}
	cluster := kubetest.Start(t, &kubetest.Options{
		Name: "one", Nodes: 1, Kubelet: &kubetest.Kubelet{Port: c.kubelet.port()},
		Users: []kubetest.User{{Name: "writer", Groups: []string{"system:masters"}}},
	})
	c.network = cluster.Proxy(t)
	config := c.network.Config(cluster.Config())
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, cluster.Name(), config); err != nil {
		t.Fatal(err)
	}
	c.passing = servePassing(t, cluster, path, flags...)
	if err := c.kubelet.serve(c.cluster); err != nil {
		t.Fatal(err)
	}
	return c
}

// startStreaming starts both, with a node.
func startStreaming(t *testing.T, opts *kubetest.Options, flags ...string) *streaming {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	c := &streaming{kubelet: startKubelet(t)}
	if opts.Kubelet == nil {
		opts.Kubelet = &kubetest.Kubelet{}
	}
	opts.Nodes, opts.Kubelet.Port = 1, c.kubelet.port()
	c.passing = startPassing(t, opts, flags...)
	if err := c.kubelet.serve(c.cluster); err != nil {
		t.Fatal(err)
	}
	return c
}

// createPods creates pods with two containers, and waits until they run.
func (c *streaming) createPods(t *testing.T, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pods := c.client(t, c.direct).CoreV1().Pods("default")
	annotations := map[string]string{}
	for _, stage := range []string{"pod-create", "pod-ready"} { // kwok waits some seconds by default
		annotations[stage+".stage.kwok.x-k8s.io/delay"], annotations[stage+".stage.kwok.x-k8s.io/jitter-delay"] = "1ms",
			"2ms"
	}
	for _, name := range names {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: annotations},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "main"}, {Name: "side", Image: "side"}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	through := c.client(t, c.through).CoreV1().Pods("default")
	for _, name := range names {
		if err := expect.Until(ctx, func() error {
			pod, err := through.Get(ctx, name, metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// terminalOf returns kubectl for a configuration. Env has further variables.
func (c *streaming) terminalOf(t *testing.T, config *rest.Config, env ...string) *userTerminal {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(path, "x", config); err != nil {
		t.Fatal(err)
	}
	return &userTerminal{terminal{c.cluster.KubectlPath(), path, filepath.Join(dir, "cache")}, env}
}

// writeKubeconfig writes a kubeconfig with one context.
func writeKubeconfig(path, context string, config *rest.Config) error {
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	k.Contexts[context] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = context
	return clientcmd.WriteToFile(*k, path)
}

// userTerminal runs kubectl with further variables.
type userTerminal struct {
	terminal
	env []string
}

// input runs kubectl with a standard input.
func (k *userTerminal) input(ctx context.Context, stdin string, args ...string) output {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The child must not outlive the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	cmd := k.command(ctx, args...)
	cmd.Env = append(cmd.Env, k.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	o := output{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		o.code = exit.ExitCode()
	case err != nil:
		o.stderr, o.code = o.stderr+err.Error(), -1
	}
	return o
}

// session is a kubectl that runs until it is ended.
type session struct {
	out, err logBuffer
	end      context.CancelFunc
	ended    sync.WaitGroup
	// code is the exit code, once ended is done: -1 if end ended it.
	code int
}

// begin starts kubectl.
func (k *userTerminal) begin(t *testing.T, args ...string) *session {
	t.Helper()
	return k.beginAt(t, nil, args...)
}

// beginAt starts kubectl at a terminal, unless that is nil.
func (k *userTerminal) beginAt(t *testing.T, terminal *os.File, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{end: cancel}
	s.ended.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := k.command(ctx, args...)
		cmd.Env = append(cmd.Env, k.env...)
		cmd.Stdout, cmd.Stderr = &s.out, &s.err
		if terminal != nil {
			cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		}
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			s.code = exit.ExitCode()
		} else if err != nil {
			s.code = -2
		}
	})
	t.Cleanup(s.stop)
	return s
}

// stop ends kubectl and waits for it.
func (s *session) stop() {
	s.end()
	s.ended.Wait()
}

// prints waits until kubectl has printed a text.
func (s *session) prints(t *testing.T, text string) {
	t.Helper()
	expect.Eventually(t, patience, func() error {
		if strings.Contains(s.out.String(), text) {
			return nil
		}
		return fmt.Errorf("no %q; stdout %q, stderr %q", text, s.out.String(), s.err.String())
	})
}

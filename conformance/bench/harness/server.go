// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// Media types of objects.
const (
	JSON     = "application/json"
	Protobuf = "application/vnd.kubernetes.protobuf"
)

// Format is the form in which a client requests a response.
type Format struct {
	// Accept is the media type.
	Accept string
	Gzip   bool
}

// Server is a process that serves the Kubernetes API.
type Server struct {
	Process
	// Config has the address, with the path at which the API begins.
	Config *rest.Config
}

// APIServer returns the kube-apiserver of a cluster.
func APIServer(c *kubetest.Cluster) *Server {
	return &Server{Process: Process{Name: "kube-apiserver", PID: c.APIServer.PID()}, Config: c.Config()}
}

// Client returns an HTTP/2 client with a connection of its own, which it opens with
// its first request.
func (s *Server) Client() (*http.Client, error) {
	config, err := rest.TLSConfigFor(s.Config)
	if err != nil {
		return nil, err
	}
	// Each request sets whether it accepts compression.
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true},
	}, nil
}

// Get requests a path and returns the body of the response, which the caller
// closes. A response that is not 200, not HTTP/2 or compressed without request is
// an error.
func (s *Server) Get(ctx context.Context, client *http.Client, path string, f Format) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", f.Accept)
	req.Header.Set("Accept-Encoding", "identity")
	if f.Gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if s.Config.BearerToken != "" {
		req.Header.Set("Authorization", "Bearer "+s.Config.BearerToken)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	compressed := resp.Header.Get("Content-Encoding") == "gzip"
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || compressed && !f.Gzip {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s, %s: %s", s.Name, path, resp.Proto, resp.Status,
			resp.Header.Get("Content-Encoding"), text)
	}
	return resp.Body, nil
}

// Address has what another process needs to reach a server.
type Address struct {
	Name  string
	Host  string
	Token string
	CA    []byte
}

// Address returns the address of the server.
func (s *Server) Address() Address {
	return Address{Name: s.Name, Host: s.Config.Host, Token: s.Config.BearerToken, CA: s.Config.CAData}
}

// Server returns the server at the address. Its process cannot be measured.
func (a Address) Server() *Server {
	return &Server{Process: Process{Name: a.Name}, Config: &rest.Config{
		Host: a.Host, BearerToken: a.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA},
	}}
}

// isGzip reports whether a body is compressed. Servers do not compress short ones.
func isGzip(body []byte) bool { return len(body) > 2 && body[0] == 0x1f && body[1] == 0x8b }

// Cluster is a cluster with the first pods of the workload.
type Cluster struct {
	*kubetest.Cluster
	// Pods is how many pods it has.
	Pods int
	// Version is the version that its API server reports.
	Version string
}

// StartCluster starts a cluster with the given number of pods, or that of EnvPods. The
// caller closes it.
func StartCluster(ctx context.Context, pods int) (*Cluster, error) {
	pods, err := EnvInt(EnvPods, pods)
	if err != nil {
		return nil, err
	}
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return nil, err
	}
	version, err := ServerVersion(c.Config())
	if err == nil {
		err = c.LoadPods(ctx, kubetest.Workload{Seed: 1}, pods)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Cluster{c, pods, version}, nil
}

// env returns the environment variables from which [OfCluster] finds the cluster in
// another process.
func (c *Cluster) env() []string {
	return []string{"KUBECONFIG=" + c.Kubeconfig(), EnvPods + "=" + strconv.Itoa(c.Pods)}
}

// OfCluster returns the measurement of a subject of [Trial.RunWithPods]. It calls measure
// with the cluster and the number of its pods.
func OfCluster[R any](
	measure func(ctx context.Context, cfg *rest.Config, pods int) (R, error),
) func(context.Context) (R, error) {
	return func(ctx context.Context) (R, error) {
		var none R
		cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return none, err
		}
		pods, err := EnvInt(EnvPods, 0)
		if err != nil {
			return none, err
		}
		return measure(ctx, cfg, pods)
	}
}

// ServerVersion returns the version that an API server reports.
func ServerVersion(cfg *rest.Config) (string, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	v, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return v.GitVersion, nil
}

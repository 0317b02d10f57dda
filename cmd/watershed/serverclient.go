// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serverChoice selects a server: that of this machine, or that of a context.
type serverChoice struct {
	state               state
	kubeconfig, context string
}

// serverClient is a client of a server's fleet.
type serverClient struct {
	// url is the address of the fleet's API.
	url    string
	client *http.Client
}

// open returns a client of the selected server.
func (s *serverChoice) open() (*serverClient, error) {
	if s.context == "" && s.kubeconfig == "" {
		return s.openLocal()
	}
	if s.state.dir != "" {
		return nil, errors.New("--state-dir has no effect with --context or --kubeconfig: the state folder belongs to the server of this machine")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if !strings.HasSuffix(strings.TrimRight(cfg.Host, "/"), "/fleet") {
		return nil, errors.New("the context is not for the fleet of a server: use one that watershed kubeconfig has written, whose address ends with /fleet")
	}
	return newServerClient(cfg)
}

// openLocal returns a client of the server of this machine, with the owner's token.
func (s *serverChoice) openLocal() (*serverClient, error) {
	t, err := localTarget(s.state, "")
	if err != nil {
		return nil, err
	}
	if t.owner == "" {
		return nil, fmt.Errorf("the server at %s has no owner: use --context with a context that watershed kubeconfig has written for the fleet", t.url)
	}
	cfg := &rest.Config{Host: t.url + "/fleet", BearerToken: t.owner}
	cfg.CAData = t.authority
	return newServerClient(cfg)
}

func newServerClient(cfg *rest.Config) (*serverClient, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", cfg.Host, err)
	}
	return &serverClient{url: strings.TrimRight(cfg.Host, "/"), client: client}, nil
}

func (c *serverClient) close() { c.client.CloseIdleConnections() }

// exchange sends a request to a server, and returns at most limit bytes of the response, and its header. A
// response with another code than the wanted one is an error.
func exchange(client *http.Client, server string, req *http.Request, want int, limit int64) (text []byte, header http.Header, err error) {
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", server, err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, nil, fmt.Errorf("server at %s: %w", server, err)
	}
	if resp.StatusCode != want {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = resp.Status
		}
		return nil, nil, fmt.Errorf("server at %s: %s", server, status.Message)
	}
	return text, resp.Header, nil
}

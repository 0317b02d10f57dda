// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
)

// maxVerification limits, in bytes, how much of a response is read.
const maxVerification = 64 << 20

// verifyServer selects the server that compares its copies.
type verifyServer struct {
	state               state
	kubeconfig, context string
}

// verifyClient sends verifications to a server.
type verifyClient struct {
	// url is the address of the fleet's API.
	url    string
	client *http.Client
}

// open returns a client of the selected server.
func (s *verifyServer) open() (*verifyClient, error) {
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
	return newVerifyClient(cfg)
}

// openLocal returns a client of the server of this machine, with the owner's token.
func (s *verifyServer) openLocal() (*verifyClient, error) {
	t, err := localTarget(s.state, "")
	if err != nil {
		return nil, err
	}
	if t.owner == "" {
		return nil, fmt.Errorf("the server at %s has no owner: use --context with a context that watershed kubeconfig has written for the fleet", t.url)
	}
	cfg := &rest.Config{Host: t.url + "/fleet", BearerToken: t.owner}
	cfg.CAData = t.authority
	return newVerifyClient(cfg)
}

func newVerifyClient(cfg *rest.Config) (*verifyClient, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", cfg.Host, err)
	}
	return &verifyClient{url: strings.TrimRight(cfg.Host, "/"), client: client}, nil
}

func (c *verifyClient) close() { c.client.CloseIdleConnections() }

// create sends a verification and returns its results. With dryRun, the server compares
// nothing, and the results name what it would compare.
func (c *verifyClient) create(ctx context.Context, spec verification.Spec, dryRun bool) ([]verification.Result, error) {
	body, err := json.Marshal(verification.New(spec))
	if err != nil {
		return nil, err
	}
	url := c.url + verification.Path
	if dryRun {
		url += "?dryRun=" + metav1.DryRunAll
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", c.url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxVerification))
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", c.url, err)
	}
	if resp.StatusCode != http.StatusCreated {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = resp.Status
		}
		return nil, fmt.Errorf("server at %s: %s", c.url, status.Message)
	}
	var v verification.Verification
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("server at %s: %w", c.url, err)
	}
	return v.Status.Results, nil
}

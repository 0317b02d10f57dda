// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// Choice is the flags that select the server of this machine, or the server of a context.
type Choice struct {
	State               state.Dir
	Kubeconfig, Context string
}

// AddFlags adds the flags to a command.
func (s *Choice) AddFlags(cmd *cobra.Command) {
	state.AddFlag(cmd, &s.State)
	flags := cmd.Flags()
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", "the `file` with the context (default those in KUBECONFIG, "+
		"else ~/.kube/config)")
	flags.StringVar(&s.Context, "context", "", "a `context` for the fleet of a server (default the server of this "+
		"machine, from the state folder)")
}

// Client is a client of a server's fleet.
type Client struct {
	// URL is the address of the fleet's API.
	URL  string
	HTTP *http.Client
}

// Open returns a client of the selected server.
func (s *Choice) Open() (*Client, error) {
	if s.Context == "" && s.Kubeconfig == "" {
		return s.openLocal()
	}
	if s.State.Path != "" {
		return nil, errors.New("--state-dir has no effect with --context or --kubeconfig: the state folder belongs " +
			"to the server of this machine")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: s.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if !strings.HasSuffix(strings.TrimRight(cfg.Host, "/"), "/fleet") {
		return nil, errors.New("the context is not for the fleet of a server: use one that watershed kubeconfig has " +
			"written, whose address ends with /fleet")
	}
	return newClient(cfg)
}

// openLocal returns a client of the server of this machine, with the owner's token.
func (s *Choice) openLocal() (*Client, error) {
	t, err := LocalTarget(s.State, "")
	if err != nil {
		return nil, err
	}
	if t.Owner == "" {
		return nil, fmt.Errorf("the server at %s has no owner: use --context with a context that watershed "+
			"kubeconfig has written for the fleet", t.URL)
	}
	cfg := &rest.Config{Host: t.URL + "/fleet", BearerToken: t.Owner}
	cfg.CAData = t.Authority
	return newClient(cfg)
}

func newClient(cfg *rest.Config) (*Client, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", cfg.Host, err)
	}
	return &Client{URL: strings.TrimRight(cfg.Host, "/"), HTTP: client}, nil
}

// Close closes the connections to the server.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Exchange sends a request to a server, and returns at most limit bytes of the response, and its
// header. A response with another code than the wanted one is an error.
func Exchange(
	client *http.Client, server string, req *http.Request, want int, limit int64,
) (text []byte, header http.Header, err error) {
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

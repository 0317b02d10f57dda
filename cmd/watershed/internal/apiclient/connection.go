// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/fleet/directory"
)

// Connection sends requests to a server with the credentials of a caller.
type Connection struct {
	// URL is the address of the server, without a final slash.
	URL string
	// HTTP adds the credentials to each request. It does not follow redirects, which could lead
	// credentials to another server.
	HTTP   *http.Client
	target *Target
	// credentials names the user's context, "" for the owner.
	credentials string
	// contexts are the user's contexts by the cluster that they are for.
	contexts map[string]string
	// kubeconfig is the file with the contexts, "" if kubectl reads it by default.
	kubeconfig string
}

// openAsOwner returns a connection with the owner's token, or the error of finding the server.
func openAsOwner(t *Target, err error) (*Connection, error) {
	if err != nil {
		return nil, err
	}
	cfg := &rest.Config{Host: t.URL + fleetPath, BearerToken: t.Owner}
	cfg.CAData = t.Authority
	c := &Connection{target: t, URL: t.URL}
	if len(t.Kubeconfig) > 0 {
		// Without the files only the commands in texts have no context.
		if mine, err := ReadUserKubeconfig(t.Kubeconfig, t.Contexts); err == nil {
			c.contexts, c.kubeconfig = contextsByCluster(mine), unlessDefault(t.Kubeconfig)
		}
	}
	return c, c.use(cfg)
}

// use makes the connection use a client configuration.
func (c *Connection) use(cfg *rest.Config) error {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return fmt.Errorf("server at %s: %w", c.URL, err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTP = client
	return nil
}

// Close closes the connections to the server.
func (c *Connection) Close() { c.HTTP.CloseIdleConnections() }

// unlessDefault returns the path of a kubeconfig, "" if kubectl reads the paths by default, or if
// there are several, which no flag can name.
func unlessDefault(paths []string) string {
	if len(paths) != 1 || slices.Equal(paths, directory.NewKubeconfig(nil).Paths()) {
		return ""
	}
	return paths[0]
}

// contextsByCluster returns the user's contexts by the cluster that they are for.
func contextsByCluster(mine *UserKubeconfig) map[string]string {
	contexts := map[string]string{}
	for _, c := range mine.Contexts {
		contexts[c.Cluster] = c.Name
	}
	return contexts
}

// authenticate makes the connection use the credentials of one of the user's contexts.
func (c *Connection) authenticate(mine *UserKubeconfig, name string) error {
	if name == "" {
		name = c.contexts[c.target.Home]
	}
	if name == "" {
		name = mine.Current()
	}
	if name == "" || mine.Config.Contexts[name] == nil {
		return fmt.Errorf("context %q does not exist in %s: name the context whose credentials the server accepts "+
			"with --context", name, mine.Source)
	}
	c.credentials = name
	if c.target.config != nil {
		return c.use(c.target.config)
	}
	credential, err := mine.Credential(name)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	cfg, err := c.target.ClientConfig("fleet", fleetPath, credential)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	return c.use(cfg)
}

// Get requests a path. The caller closes the body.
func (c *Connection) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", c.URL, err)
	}
	return c.HTTP.Do(req)
}

// Exchange sends a request, and returns at most limit bytes of the response, and its header. A
// response with another code than the wanted one is an error.
func (c *Connection) Exchange(req *http.Request, want int, limit int64) (text []byte, header http.Header, err error) {
	return Exchange(c.HTTP, c.URL, req, want, limit)
}

// Exchange is [Connection.Exchange] with a client for the server at an address.
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

// Report requests the state of the clusters.
func (c *Connection) Report(ctx context.Context, program string) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	resp, err := c.Get(ctx, "/clusters")
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", c.URL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp)
	}
	r := &status.Report{At: time.Now(), Program: program, Contexts: c.contexts, Kubeconfig: c.kubeconfig}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		r.At = date
	}
	warnings, _ := utilnet.ParseWarningHeaders(resp.Header["Warning"]) // what cannot be parsed is ignored
	for _, w := range warnings {
		r.Notes = append(r.Notes, "note: "+w.Text)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClusters)).Decode(&r.Clusters); err != nil {
		return nil, fmt.Errorf("server at %s: list clusters: %w", c.URL, err)
	}
	return r, nil
}

// errRefused means that the server does not accept the credentials.
var errRefused = errors.New("it does not accept the credentials for the whole fleet")

// refused returns the error for a response that is not a success.
func (c *Connection) refused(resp *http.Response) error {
	where := fmt.Sprintf("server at %s: list clusters: %s", c.URL, resp.Status)
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.credentials != "" && c.target.nobody:
		return fmt.Errorf("%s: %w of context %q: nobody authenticates callers for the whole fleet, because "+
			"watershed serve runs without --home and --oidc-issuer-url; restart it with --home CLUSTER, or leave out "+
			"--context to ask as its owner", where, errRefused, c.credentials)
	case resp.StatusCode == http.StatusUnauthorized && c.credentials != "":
		err := fmt.Errorf("%s: %w of context %q; name a context of its home cluster (serve --home) with --context; "+
			"client certificates are not accepted", where, errRefused, c.credentials)
		if c.target.Home == "" { // the server is elsewhere, or only an issuer authenticates callers
			err = fmt.Errorf("%w; a server without --home and --oidc-issuer-url accepts only its owner", err)
		}
		return err
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w of the state directory", where, errRefused)
	case resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: no cluster allows context %q to use its API", where, c.credentials)
	}
	return errors.New(where)
}

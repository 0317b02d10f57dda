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

	"github.com/spf13/cobra"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/fleet/directory"
)

// ConnectionOptions are the flags of commands that read from a running server.
type ConnectionOptions struct {
	Location
	kubeconfig string
	context    string
}

// AddFlags adds the flags to a command.
func (o *ConnectionOptions) AddFlags(cmd *cobra.Command) {
	o.Location.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the `file` with your credentials, if the server has no owner "+
		"(default the files in KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "your `context` whose credentials the server accepts for the whole "+
		"fleet (default that of its home cluster, else the current context)")
	completion.Flag(cmd, "context", completion.Contexts)
}

// Connection reads documents from a server.
type Connection struct {
	target    *Target
	transport http.RoundTripper
	// Close closes the connections to the server.
	Close func()
	// token is the owner's, "" if the transport has credentials.
	token string
	// credentials names the user's context, "" for the owner.
	credentials string
	// contexts are the user's contexts by the cluster that they are for.
	contexts map[string]string
	// kubeconfig is the file with the contexts, "" if kubectl reads it by default.
	kubeconfig string
}

// Open finds the server and the credentials. It sends no request. The caller closes the
// connection.
func (o *ConnectionOptions) Open() (*Connection, error) {
	t, err := o.Target()
	if err != nil {
		return nil, err
	}
	if t.Owner != "" && o.context == "" {
		return openAsOwner(t)
	}
	paths := t.Kubeconfig
	if o.kubeconfig != "" {
		paths = []string{o.kubeconfig}
	}
	mine, err := ReadUserKubeconfig(paths, nil)
	if err != nil {
		return nil, fmt.Errorf("credentials for the server at %s: %w", t.URL, err)
	}
	c := &Connection{target: t, contexts: contextsByCluster(mine), kubeconfig: unlessDefault(paths)}
	return c, c.authenticate(mine, o.context)
}

// openAsOwner returns a connection with the owner's token.
func openAsOwner(t *Target) (*Connection, error) {
	transport, err := t.transport()
	if err != nil {
		return nil, err
	}
	c := &Connection{target: t, transport: transport, token: t.Owner, Close: transport.CloseIdleConnections}
	if len(t.Kubeconfig) > 0 {
		// Without the files only the commands in texts have no context.
		if mine, err := ReadUserKubeconfig(t.Kubeconfig, t.Contexts); err == nil {
			c.contexts, c.kubeconfig = contextsByCluster(mine), unlessDefault(t.Kubeconfig)
		}
	}
	return c, nil
}

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
	credential, err := mine.Credential(name)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	cfg, err := c.target.ClientConfig("fleet", "/fleet", credential)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	c.credentials = name
	if c.transport, err = rest.TransportFor(cfg); err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	c.Close = func() { utilnet.CloseIdleConnectionsFor(c.transport) }
	return nil
}

// Get requests a path with the credentials of the connection. The caller closes the body.
func (c *Connection) Get(ctx context.Context, path string) (*http.Response, error) {
	return c.target.get(ctx, c.transport, path, c.token)
}

// Report requests the state of the clusters.
func (c *Connection) Report(ctx context.Context, program string) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	resp, err := c.Get(ctx, "/clusters")
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", c.target.URL, err)
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
		return nil, fmt.Errorf("server at %s: list clusters: %w", c.target.URL, err)
	}
	return r, nil
}

// errRefused means that the server does not accept the credentials.
var errRefused = errors.New("it does not accept the credentials for the whole fleet")

// refused returns the error for a response that is not a success.
func (c *Connection) refused(resp *http.Response) error {
	where := fmt.Sprintf("server at %s: list clusters: %s", c.target.URL, resp.Status)
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.credentials != "":
		return fmt.Errorf("%s: %w of context %q; name a context of its home cluster with --context; client "+
			"certificates are not accepted", where, errRefused, c.credentials)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w of the state folder", where, errRefused)
	case resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: no cluster allows context %q to use its API", where, c.credentials)
	}
	return errors.New(where)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

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
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
	"github.com/watershed-project/watershed/fleet/directory"
)

// connectionOptions are the flags of commands that read from a running server.
type connectionOptions struct {
	state      state
	server     string
	authority  string // a file
	kubeconfig string
	context    string
}

func (o *connectionOptions) addFlags(cmd *cobra.Command) {
	stateFlag(cmd, &o.state)
	flags := cmd.Flags()
	flags.StringVar(&o.server, "server", "", "the `URL` of a server elsewhere (default the server of this machine, from the state folder)")
	flags.StringVar(&o.authority, "certificate-authority", "", "a `file` with the certificates that verify the server (default those of the state folder, and with --server those of the system)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the `file` with your credentials, if the server has no owner (default the files in KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "your `context` whose credentials the server accepts for the whole fleet (default that of its home cluster, else the current context)")
	completeFlag(cmd, "context", contextNames)
}

// connection reads documents from a server.
type connection struct {
	target    *target
	transport http.RoundTripper
	close     func()
	// token is the owner's, "" if the transport has credentials.
	token string
	// credentials names the user's context, "" for the owner.
	credentials string
	// contexts are the user's contexts by the cluster that they are for.
	contexts map[string]string
	// kubeconfig is the file with the contexts, "" if kubectl reads it by default.
	kubeconfig string
}

// open finds the server and the credentials. It sends no request. The caller closes the
// connection.
func (o *connectionOptions) open() (*connection, error) {
	t, err := (&kubeconfigOptions{state: o.state, server: o.server, authority: o.authority}).target()
	if err != nil {
		return nil, err
	}
	if t.owner != "" && o.context == "" {
		return openAsOwner(t)
	}
	paths := t.kubeconfig
	if o.kubeconfig != "" {
		paths = []string{o.kubeconfig}
	}
	mine, err := readUserKubeconfig(paths, nil)
	if err != nil {
		return nil, fmt.Errorf("credentials for the server at %s: %w", t.url, err)
	}
	c := &connection{target: t, contexts: contextsByCluster(mine), kubeconfig: unlessDefault(paths)}
	return c, c.authenticate(mine, o.context)
}

// openAsOwner returns a connection with the owner's token.
func openAsOwner(t *target) (*connection, error) {
	transport, err := t.transport()
	if err != nil {
		return nil, err
	}
	c := &connection{target: t, transport: transport, token: t.owner, close: transport.CloseIdleConnections}
	if len(t.kubeconfig) > 0 {
		// Without the files only the commands in texts have no context.
		if mine, err := readUserKubeconfig(t.kubeconfig, t.contexts); err == nil {
			c.contexts, c.kubeconfig = contextsByCluster(mine), unlessDefault(t.kubeconfig)
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
func contextsByCluster(mine *userKubeconfig) map[string]string {
	contexts := map[string]string{}
	for _, c := range mine.contexts {
		contexts[c.Cluster] = c.Name
	}
	return contexts
}

// authenticate makes the connection use the credentials of one of the user's contexts.
func (c *connection) authenticate(mine *userKubeconfig, name string) error {
	if name == "" {
		name = c.contexts[c.target.home]
	}
	if name == "" {
		name = mine.current()
	}
	if name == "" || mine.config.Contexts[name] == nil {
		return fmt.Errorf("context %q does not exist in %s: name the context whose credentials the server accepts with --context", name, mine.source)
	}
	credential, err := mine.credential(name)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	k := newKubeconfig(c.target, "", []replicaContext{newFleetContext(credential)}, "")
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*k, k.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	c.credentials = name
	if c.transport, err = rest.TransportFor(cfg); err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	c.close = func() { utilnet.CloseIdleConnectionsFor(c.transport) }
	return nil
}

// report requests the state of the clusters.
func (c *connection) report(ctx context.Context, program string) (*status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	resp, err := c.target.get(ctx, c.transport, "/clusters", c.token)
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", c.target.url, err)
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
		return nil, fmt.Errorf("server at %s: list clusters: %w", c.target.url, err)
	}
	return r, nil
}

// errRefused means that the server does not accept the credentials.
var errRefused = errors.New("it does not accept the credentials for the whole fleet")

// refused returns the error for a response that is not a success.
func (c *connection) refused(resp *http.Response) error {
	where := fmt.Sprintf("server at %s: list clusters: %s", c.target.url, resp.Status)
	switch {
	case resp.StatusCode == http.StatusUnauthorized && c.credentials != "":
		return fmt.Errorf("%s: %w of context %q; name a context of its home cluster with --context; client certificates are not accepted", where, errRefused, c.credentials)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w of the state folder", where, errRefused)
	case resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: no cluster allows context %q to use its API", where, c.credentials)
	}
	return errors.New(where)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
)

const (
	// fleetPath is the path of the API of all clusters of a server.
	fleetPath = "/fleet"
	// completionTimeout limits how long a shell waits for the names of clusters.
	completionTimeout = 2 * time.Second
)

// Options are the flags that select a server, and the credentials for it. All commands that use a
// running server have these flags, with the meaning that they have for kubectl: a context has the
// address of a server, the certificates that verify it, and credentials; --server and
// --certificate-authority replace the first two. So people need one name: the name of a context
// which watershed kubeconfig has written for the fleet, and programs without such a context can name an
// address. Two things are added to kubectl's meaning:
//
//   - Without these flags, the server of this machine is used, as its owner.
//   - A context of a cluster has no address of a server. Its credentials are sent to the server of
//     --server, or to the server of this machine.
//
// The flags select credentials and give no rights: the server decides what each credential may read.
type Options struct {
	State state.Dir
	// Server is the address of a server elsewhere, "" if the flag is not set.
	Server string
	// Kubeconfig is a file, "" for the files that kubectl reads.
	Kubeconfig string
	Context    string
	authority  string // a file
	// stateDir is the flag of State, nil if the options were not made by flags.
	stateDir *pflag.Flag
}

// AddFlags adds the flags to a command.
func (o *Options) AddFlags(cmd *cobra.Command) {
	state.AddFlag(cmd, &o.State)
	flags := cmd.Flags()
	o.stateDir = flags.Lookup("state-dir")
	flags.StringVar(&o.Server, "server", "", "the `URL` of a server elsewhere (default the server of --context, else "+
		"the server of this machine, from the state directory)")
	flags.StringVar(&o.authority, "certificate-authority", "", "a `file` with the certificates that verify the "+
		"server (default the certificates of the context or of the state directory, and with --server those of the "+
		"system)")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "the `file` with your contexts (default the files in KUBECONFIG, "+
		"else ~/.kube/config)")
	flags.StringVar(&o.Context, "context", "", "your `context` whose credentials the server accepts for the whole "+
		"fleet; a context that watershed kubeconfig has written for the fleet also names the server (default the "+
		"owner of the server of this machine, else your context for the home cluster, else the current context)")
	completion.Flag(cmd, "context", completion.Contexts)
	for _, name := range []string{"state-dir", "server", "certificate-authority", "kubeconfig", "context"} {
		usage.SetSection(flags.Lookup(name), "Server and credentials")
	}
}

// AddClusterFlag adds the flag that selects clusters of the server.
func (o *Options) AddClusterFlag(cmd *cobra.Command, selected *[]string) {
	cmd.Flags().StringArrayVar(selected, "cluster", nil, "the `name` of a cluster of the server; may be repeated "+
		"(default all)")
	completion.Flag(cmd, "cluster", func(cmd *cobra.Command) []string {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := o.Open()
		if err != nil {
			return nil
		}
		defer c.Close()
		r, err := c.Report(ctx, "")
		if err != nil {
			return nil
		}
		var names []string
		for _, one := range r.Clusters.Clusters {
			if !slices.Contains(*selected, one.Name) {
				names = append(names, one.Name+"\t"+one.State)
			}
		}
		return names
	})
}

// Named reports whether a flag names a server or credentials.
func (o *Options) Named() bool { return o.Server != "" || o.Context != "" || o.Kubeconfig != "" }

// paths returns the file of --kubeconfig, nil for the files that kubectl reads.
func (o *Options) paths() []string {
	if o.Kubeconfig == "" {
		return nil
	}
	return []string{o.Kubeconfig}
}

// Target returns the server that the flags select: the server of --server, else of --context if it is a
// context for the fleet of a server, else of this machine.
func (o *Options) Target() (*Target, error) {
	if o.Context == "" || o.Server != "" {
		return o.target(nil, "")
	}
	mine, err := ReadUserKubeconfig(o.paths(), nil)
	if err != nil || mine.Config.Contexts[o.Context] == nil {
		return o.target(nil, "") // the context may be in the files that the server of this machine mirrors
	}
	return o.target(mine, o.Context)
}

// target returns the server that the flags select. name is the selected context of mine, "" if none is selected.
func (o *Options) target(mine *UserKubeconfig, name string) (*Target, error) {
	if o.Server != "" {
		if err := o.refuseStateDir("--server"); err != nil {
			return nil, err
		}
		return remoteTarget(o.Server, o.authority)
	}
	if name != "" {
		if mine.Config.Contexts[name] == nil {
			return nil, fmt.Errorf("context %q does not exist in %s", name, mine.Source)
		}
		if address, ok := mine.fleetAddress(name); ok {
			return o.contextTarget(mine, name, address)
		}
	}
	t, err := LocalTarget(o.State, o.authority)
	if errors.Is(err, state.ErrNotServing) && name != "" {
		return nil, fmt.Errorf("%w; context %q does not name a server: its address does not end with %s", err, name,
			fleetPath)
	}
	return t, err
}

// refuseStateDir returns an error if --state-dir is used with a flag that selects another server.
func (o *Options) refuseStateDir(with string) error {
	if o.stateDir == nil || !o.stateDir.Changed {
		return nil // a value of the environment variable is the default of the flag
	}
	return fmt.Errorf("--state-dir has no effect with %s: the state directory belongs to the server of this machine",
		with)
}

// fleetAddress returns the address of a context's server without the path of its fleet. It returns
// false if the context is not for the fleet of a server.
func (k *UserKubeconfig) fleetAddress(name string) (address string, ok bool) {
	cluster := k.Cluster(name)
	if cluster == nil {
		return "", false
	}
	return strings.CutSuffix(strings.TrimRight(cluster.Server, "/"), fleetPath)
}

// contextTarget returns the server of a context for its fleet.
func (o *Options) contextTarget(mine *UserKubeconfig, name, address string) (*Target, error) {
	if err := o.refuseStateDir("a context for a fleet"); err != nil {
		return nil, err
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("context %q: credentials are only sent over https", name)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*mine.Config, name, nil, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	authority, err := readCertificates(o.authority)
	if err != nil {
		return nil, err
	}
	if authority != nil {
		cfg.CAFile, cfg.CAData, cfg.Insecure = "", authority, false
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	return &Target{URL: address, Authority: cfg.CAData, config: cfg}, nil
}

// Open finds the server and the credentials. It sends no request. The caller closes the
// connection.
func (o *Options) Open() (*Connection, error) {
	if !o.Named() {
		t, err := o.target(nil, "")
		if err != nil || t.Owner != "" {
			return openAsOwner(t, err)
		}
		return o.openWith(t, t.Kubeconfig)
	}
	return o.openWith(nil, o.paths())
}

// openWith returns a connection with the credentials of a context in kubeconfig files. If the target is
// nil, openWith finds the server.
func (o *Options) openWith(t *Target, paths []string) (*Connection, error) {
	if t == nil && o.Server != "" {
		// Errors about the address come before errors about the files.
		var err error
		if t, err = o.target(nil, ""); err != nil {
			return nil, err
		}
	}
	mine, err := ReadUserKubeconfig(paths, nil)
	if err != nil {
		return nil, fmt.Errorf("credentials for the server: %w", err)
	}
	if t == nil {
		name := o.Context
		if current := mine.Current(); name == "" && mine.Config.Contexts[current] != nil {
			name = current
		}
		if t, err = o.target(mine, name); err != nil {
			return nil, err
		}
	}
	c := &Connection{target: t, URL: t.URL, contexts: contextsByCluster(mine), kubeconfig: unlessDefault(paths)}
	return c, c.authenticate(mine, o.Context)
}

// Help explains the flags in the help text of a command.
const Help = `Without --server and --context, the server of this machine is used, as its owner. For a
server elsewhere use the context that watershed kubeconfig has written for its fleet, or
--server and a context of yours with a token that the server accepts for the whole fleet
(serve --home or --oidc-issuer-url).`

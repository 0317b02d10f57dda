// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kubeconfig is the command watershed kubeconfig: it selects contexts for the clusters of a
// server, with their credentials, and prints them or merges them into a file.
package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/status"
)

// defaultPrefix is the default prefix of the names in the kubeconfig. Without a prefix
// contexts would have the names of the user's own contexts, and one would silently hide
// the other where kubeconfigs are merged.
const defaultPrefix = "watershed-"

// The values of --credentials.
const (
	ownerCredentials = "owner"
	userCredentials  = "user"
)

// options are the flags of kubeconfig.
type options struct {
	server      apiclient.Options
	credentials string // "" means the default
	contexts    []string
	clusters    []string // CONTEXT=NAME
	offline     bool
	prefix      string
	output      destination
}

// long and example are the help text of kubeconfig.
const (
	long = `Kubeconfig prints a kubeconfig with a context for each cluster that a watershed serve
mirrors, and one for all of them together, which is called fleet. All names begin with
a prefix, so that the kubeconfig can be merged with others.

The server of this machine is found in the state directory. --credentials selects what
its contexts contain:

  owner  The owner's token from the state directory. The owner is the person that runs
         serve on this machine, and can read what the mirrored kubeconfig can read.
         This is the default if the server has an owner.
  user   The credentials of your own kubeconfig: the context of a cluster keeps the
         token, certificate, credential plugin and impersonation of your context for
         it. Clusters that you have no context for are left out. Without --kubeconfig
         they are read from the files that the server mirrors.

--server names a server elsewhere, and so does --context if it is a context for a fleet
that this command has written before. The contexts of your kubeconfig, or those that are
named, are then checked: each asks the server for its cluster, with its own credentials,
and is left out if the server refuses them or does not have the cluster. This runs
credential plugins, and sends the credentials to that server. --offline leaves out the
check. A cluster has the name of its context unless --map has another.

The context fleet has the credentials of --context. The server must accept them for the
whole fleet: name your context for the home cluster (serve --home), or one with a token of
the server's OpenID Connect issuer. Client certificates are not accepted there. The home
cluster of the server of this machine is known, so --context is not needed for it.

A credential plugin that uses the address of the cluster (provideClusterInfo) receives
the address of this server instead. Its configuration in the cluster's entry is kept.
Tokens are copied: if one is replaced in your kubeconfig, run this command again.

The output contains secrets. --write stores it in a file that only you can read, and
replaces the file in one step. It refuses to replace entries that do not belong to the
server. With --merge other entries of the file are kept, and so is its current context.
Without --write, --merge prints the entries together with those of your kubeconfig.`

	example = `  watershed kubeconfig --write replica.yaml
  kubectl --kubeconfig replica.yaml --context watershed-prod-eu get pods -A
  watershed kubeconfig --merge --write ~/.kube/config
  watershed kubeconfig --credentials user --write replica.yaml
  watershed kubeconfig --server https://replica.example:7443 --certificate-authority ca.pem --write replica.yaml
  watershed kubeconfig prod test --server https://replica.example:7443 --map prod=eu-1 --context prod --merge --write ~/.kube/config`
)

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:               "kubeconfig [CONTEXT...]",
		Short:             "Print or write a kubeconfig for a server",
		Long:              long,
		Example:           example,
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, contexts []string) error {
			o.contexts = contexts
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.server.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.credentials, "credentials", "", "the `kind` of credentials in the contexts: owner or user "+
		"(default owner if the server has an owner, else user)")
	flags.StringArrayVar(&o.clusters, "map", nil, "the name of a context's cluster at the server, as "+
		"`CONTEXT=NAME`; may be repeated (default the name of the context)")
	flags.BoolVar(&o.offline, "offline", false, "do not ask the server whether it accepts the credentials")
	flags.StringVar(&o.prefix, "prefix", defaultPrefix,
		"prefix of the names of contexts, clusters and users; may be empty")
	flags.StringVar(&o.output.path, "write", "", "a `file` to write, with mode 0600 (default standard output)")
	completion.Flag(cmd, "credentials", completion.Fixed(ownerCredentials, userCredentials))
	flags.BoolVar(&o.output.merge, "merge", false, "keep the other entries of the file of --write; without --write, "+
		"add those of your kubeconfig")
	return cmd
}

// completeContexts completes the names of contexts, without those that are among the arguments.
func completeContexts(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(completion.Contexts(cmd), func(name string) bool { return slices.Contains(args, name) })
	return completion.Beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
}

// run prints or writes the kubeconfig. Contexts that are left out are reported to trouble.
func (o *options) run(ctx context.Context, out, trouble io.Writer) error {
	t, err := o.server.Target()
	if err != nil {
		return err
	}
	if err := o.validate(t); err != nil {
		return err
	}
	mine, err := o.readMine(t, trouble)
	if err != nil {
		return err
	}
	contexts, err := o.choose(ctx, t, mine, trouble)
	if err != nil {
		return err
	}
	if len(contexts) == 0 {
		return fmt.Errorf("kubeconfig: no context for the server at %s is left", t.URL)
	}
	return o.output.deliver(out, t, newKubeconfig(t, o.prefix, contexts, mine.Current()), mine)
}

// validate sets the default of --credentials, and refuses flags that would have no effect.
func (o *options) validate(t *apiclient.Target) error {
	switch {
	case o.credentials == "" && t.Owner != "":
		o.credentials = ownerCredentials
	case o.credentials == "":
		o.credentials = userCredentials
	case o.credentials != ownerCredentials && o.credentials != userCredentials:
		return fmt.Errorf("--credentials %s: use %s or %s", o.credentials, ownerCredentials, userCredentials)
	case o.credentials == ownerCredentials && t.Owner == "":
		return fmt.Errorf("--credentials owner: the server at %s has no owner; use --credentials user", t.URL)
	}
	if o.credentials == ownerCredentials && (len(o.contexts) > 0 || len(o.clusters) > 0 ||
		o.server.Context != "" || o.server.Kubeconfig != "" || o.offline) {
		return errors.New("names of contexts, --kubeconfig, --context, --map and --offline select your own " +
			"credentials: use them with --credentials user")
	}
	for _, pair := range o.clusters {
		if _, _, ok := cutLast(pair, "="); !ok {
			return fmt.Errorf("--map %s: not of the form CONTEXT=NAME", pair)
		}
	}
	return nil
}

// readMine reads the user's kubeconfig. With the owner's credentials only the names and
// namespaces of its contexts are used. An error is then reported and not returned, because
// the server keeps its clusters without the files.
func (o *options) readMine(t *apiclient.Target, trouble io.Writer) (*apiclient.UserKubeconfig, error) {
	paths, names := t.Kubeconfig, t.Contexts
	if o.server.Kubeconfig != "" {
		paths, names = []string{o.server.Kubeconfig}, nil
	}
	if o.credentials == ownerCredentials && len(paths) == 0 && !o.output.printsMerged() {
		return apiclient.EmptyKubeconfig(), nil
	}
	mine, err := apiclient.ReadUserKubeconfig(paths, names)
	if err != nil && o.credentials == ownerCredentials && !o.output.printsMerged() {
		fmt.Fprintf(trouble, "watershed: namespaces are left out: %v\n", err)
		return apiclient.EmptyKubeconfig(), nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range append(slices.Clone(o.contexts), o.server.Context) {
		if name != "" && mine.Config.Contexts[name] == nil {
			return nil, fmt.Errorf("context %q does not exist in %s", name, mine.Source)
		}
	}
	return mine, nil
}

// choose returns the contexts of the kubeconfig.
func (o *options) choose(
	ctx context.Context, t *apiclient.Target, mine *apiclient.UserKubeconfig, trouble io.Writer,
) ([]replicaContext, error) {
	s := &selection{t, mine, trouble}
	if t.Owner == "" {
		return s.checked(ctx, o.candidates(t, mine), o.homeContext(t, mine), o.offline)
	}
	clusters, err := t.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	if o.credentials == ownerCredentials {
		return s.forOwner(clusters), nil
	}
	return s.listed(clusters, o.candidates(t, mine), o.homeContext(t, mine)), nil
}

// candidates returns the contexts of the user to use, with the clusters of the server that
// they are for.
func (o *options) candidates(t *apiclient.Target, mine *apiclient.UserKubeconfig) []candidate {
	clusters := map[string]string{}
	for _, pair := range o.clusters {
		context, name, _ := cutLast(pair, "=")
		clusters[context] = name
	}
	var found []candidate
	for _, c := range mine.Contexts {
		if len(o.contexts) > 0 && !slices.Contains(o.contexts, c.Name) || t.Owns(mine.Cluster(c.Name)) {
			continue
		}
		cluster, ok := clusters[c.Name]
		if !ok {
			cluster = c.Cluster
		}
		found = append(found, candidate{Context: c, cluster: cluster})
	}
	return found
}

// homeContext returns the user's context for the home cluster, "" if it is not known.
func (o *options) homeContext(t *apiclient.Target, mine *apiclient.UserKubeconfig) string {
	if o.server.Context != "" || t.Home == "" {
		return o.server.Context
	}
	for _, c := range o.candidates(t, mine) {
		if c.cluster == t.Home {
			return c.Name
		}
	}
	return ""
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// destination is where a kubeconfig goes.
type destination struct {
	path  string // "" is standard output
	merge bool
}

// printsMerged reports whether the user's kubeconfig is part of the output.
func (o destination) printsMerged() bool { return o.merge && o.path == "" }

// deliver prints or writes a kubeconfig.
func (o destination) deliver(
	out io.Writer, t *apiclient.Target, k *clientcmdapi.Config, mine *apiclient.UserKubeconfig,
) error {
	if o.path != "" {
		path, err := writeKubeconfigFile(o.path, k, o.merge, t.Owns)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s has %s of the server at %s; kubectl uses %s unless --context names another\n",
			path, status.Counted(len(k.Contexts), "context"), t.URL, k.CurrentContext)
		return err
	}
	if o.merge {
		base := mine.Config.DeepCopy()
		if err := mergeKubeconfig(base, k, t.Owns); err != nil {
			return fmt.Errorf("merge with %s: %w", mine.Source, err)
		}
		k = base
	}
	text, err := encodeKubeconfig(k)
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

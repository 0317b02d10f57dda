// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package past has the commands that read the past of objects from a server: watershed log, diff and
// changes.
package past

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/output"
	"github.com/watershed-project/watershed/kube"
)

// maxResponse limits, in bytes, how much of a response is read.
const maxResponse = 1 << 30

// pastOptions are the flags of the commands that read the past.
type pastOptions struct {
	apiclient.Options
	clusters  []string
	namespace string
	output    output.Format
}

// declare declares the flags. Format is the default of -o.
func (o *pastOptions) declare(cmd *cobra.Command, format string) {
	o.AddFlags(cmd)
	o.AddClusterFlag(cmd, &o.clusters)
	o.output.AddFlag(cmd, format)
}

// newCommand returns a command that reads the past. Run is called with its argument, ""
// if there is none.
func newCommand(
	use, short, long, example string, args cobra.PositionalArgs,
	run func(ctx context.Context, out, warn io.Writer, text string) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), strings.Join(args, " "))
	}
	return cmd
}

// each calls read for each cluster that is selected. A cluster that fails is a warning, if
// another one does not.
func (o *pastOptions) each(
	ctx context.Context, warn io.Writer, read func(client *pastClient, cluster string) error,
) error {
	client, err := o.connect(warn)
	if err != nil {
		return err
	}
	defer client.close()
	clusters, err := client.names(ctx, o.clusters)
	if err != nil {
		return err
	}
	var failed []error
	for _, cluster := range clusters {
		if err := read(client, cluster); err != nil {
			failed = append(failed, fmt.Errorf("cluster %s: %w", cluster, err))
		}
	}
	if len(failed) == len(clusters) {
		return errors.Join(failed...)
	}
	for _, err := range failed {
		fmt.Fprintln(warn, err)
	}
	return nil
}

// answers calls read once for all clusters, with "", or for each cluster that is selected, see each.
func (o *pastOptions) answers(
	ctx context.Context, warn io.Writer, read func(client *pastClient, cluster string) error,
) error {
	if len(o.clusters) > 0 {
		return o.each(ctx, warn, read)
	}
	client, err := o.connect(warn)
	if err != nil {
		return err
	}
	defer client.close()
	return read(client, "")
}

// connect returns a client of the selected server. Warn receives the warnings of responses.
func (o *pastOptions) connect(warn io.Writer) (*pastClient, error) {
	c, err := o.Open()
	if err != nil {
		return nil, err
	}
	return &pastClient{url: c.URL, client: c.HTTP, warn: warn}, nil
}

// pastClient reads the past from a server.
type pastClient struct {
	url    string // of the server
	client *http.Client
	// warn receives the warnings of responses.
	warn io.Writer
}

func (c *pastClient) close() { c.client.CloseIdleConnections() }

// get requests a path, and decodes the response.
func (c *pastClient) get(ctx context.Context, path string, query url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	text, header, err := apiclient.Exchange(c.client, c.url, req, http.StatusOK, maxResponse)
	if err != nil {
		return err
	}
	warnings, _ := utilnet.ParseWarningHeaders(header["Warning"]) // what cannot be parsed is ignored
	for _, w := range warnings {
		fmt.Fprintln(c.warn, printable(w.Text))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("server at %s: %w", c.url, err)
	}
	return nil
}

// names returns the names of the clusters that are selected.
func (c *pastClient) names(ctx context.Context, selected []string) ([]string, error) {
	var answer apiclient.ClusterList
	if err := c.get(ctx, "/clusters", nil, &answer); err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var all []string
	for _, cluster := range answer.Clusters {
		if len(selected) == 0 || slices.ContainsFunc(append(cluster.Aliases, cluster.Name),
			func(name string) bool { return slices.Contains(selected, name) }) {
			all = append(all, cluster.Name)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the server has no cluster %s", strings.Join(selected, " or "))
	}
	return all, nil
}

// subject is the objects that a command is about.
type subject struct {
	// resource is the plural name with the group, as in deployments.apps.
	resource, namespace, name string
	// path is that of the object, or of the list if there is no name, below the root of the
	// cluster. list is that of the list.
	path, list string
}

// root returns the path of the API of a cluster, or of the fleet if the cluster is "".
func root(cluster string) string {
	if cluster == "" {
		return "/fleet"
	}
	return "/clusters/" + url.PathEscape(cluster)
}

// find returns the objects with a kind and a name in a cluster, or in the fleet if the cluster is
// "". The kind is a resource, a kind or a short name, with or without a group, as kubectl takes
// it.
func (c *pastClient) find(cluster, namespace, text string) (subject, error) {
	kind, name, _ := strings.Cut(text, "/")
	client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: c.url + root(cluster)}, c.client)
	if err != nil {
		return subject{}, err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return subject{}, fmt.Errorf("resources of the cluster: %w", err)
	}
	mapping, err := mappingOf(restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client, nil),
		kind)
	if err != nil {
		return subject{}, err
	}
	s := subject{resource: mapping.Resource.GroupResource().String(), name: name}
	path := kube.APIPath(mapping.Resource.GroupVersion())
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && namespace != "" {
		s.namespace = namespace
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	s.list = path + "/" + mapping.Resource.Resource
	s.path = s.list
	if name != "" {
		s.path += "/" + url.PathEscape(name)
	}
	return s, nil
}

// mappingOf returns the resource with a name.
func mappingOf(m meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, short := schema.ParseResourceArg(name)
	if full != nil {
		if kind, err := m.KindFor(*full); err == nil {
			return m.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	if kind, err := m.KindFor(short.WithVersion("")); err == nil {
		return m.RESTMapping(kind.GroupKind(), kind.Version)
	}
	kind := schema.ParseGroupKind(name)
	mapping, err := m.RESTMapping(kind)
	if err != nil {
		return nil, fmt.Errorf("the server has no resource %q", name)
	}
	return mapping, nil
}

// printable returns a text, quoted if it has characters that cannot be printed. The author of an
// object chooses the names of some of its fields, and must not control the terminal of a reader.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package rbac is the command watershed rbac: it prints the rights that serve needs in a cluster.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/completion"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// options are the flags of rbac.
type options struct {
	kubeconfig, context string
	resources, except   []string
	namespace           string
	groupNamespace      string
	localRBAC           bool
	serviceAccount      string
	user                string
	name                string
}

const long = `Rbac prints, as YAML, the Roles, ClusterRoles and bindings that watershed serve
needs in one of its clusters, and no more than that:

  get, list and watch of the resources that serve mirrors with the same flags
  the documents about types: discovery, OpenAPI and the version
  TokenReviews and SubjectAccessReviews, to authenticate and authorize callers
  the certificate authority of client certificates, and the identity of the cluster
  with --group-namespace: the Leases of a replica group in that namespace

No rule has a star: it would allow Secrets and subresources such as pods/exec. So a
pattern with a star, such as the default of --resources, needs the cluster, to find
out which resources it serves: name it with --kubeconfig or --context. Types that
are added to the cluster later are mirrored after the command has been used again.

Rights on a hub, for --cluster-api and --cluster-profiles of serve, are not included.`

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the rights that serve needs in a cluster",
		Long:  long,
		Example: `  watershed rbac --context prod-eu --service-account watershed/watershed | kubectl --context prod-eu apply -f -
  watershed rbac --resources pods,deployments.apps --user watershed
  watershed rbac --context prod-eu --namespace shop --user watershed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printRBAC(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig `file` of the cluster (default the files in "+
		"KUBECONFIG, else ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "the `context` of the cluster")
	flags.StringSliceVar(&o.resources, "resources", settings.DefaultResources(),
		"`patterns` of resources to mirror, as for serve")
	flags.StringSliceVar(&o.except, "except", nil, "`patterns` of resources not to mirror, as for serve")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "mirror one `namespace` only, as for serve")
	flags.StringVar(&o.groupNamespace, "group-namespace", "", "this cluster has the Leases of a replica group in this "+
		"`namespace`, as for serve")
	flags.BoolVar(&o.localRBAC, "local-rbac", false, "serve evaluates the RBAC of this cluster itself (its flag "+
		"--local-rbac)")
	flags.StringVar(&o.serviceAccount, "service-account", "", "the service account of serve, as `NAMESPACE/NAME`")
	flags.StringVar(&o.user, "user", "",
		"the `name` of the user whose credentials serve has, instead of a service account")
	flags.StringVar(&o.name, "name", "watershed", "the `name` of the roles and bindings")
	completion.Flag(cmd, "context", completion.Contexts)
	return cmd
}

// printRBAC writes the rights that serve needs.
func printRBAC(ctx context.Context, out, trouble io.Writer, o options) error {
	if o.localRBAC && o.namespace != "" {
		return errors.New("--local-rbac has no effect with --namespace: ClusterRoles and their bindings are in no " +
			"namespace")
	}
	subject, err := o.subject()
	if err != nil {
		return err
	}
	needed := requiredRights{name: o.name, namespace: o.namespace, groupNamespace: o.groupNamespace, subject: subject}
	if o.kubeconfig == "" && o.context == "" {
		err = o.byName(&needed)
	} else {
		err = o.byDiscovery(ctx, &needed, trouble)
	}
	if err != nil {
		return err
	}
	return needed.print(out)
}

// subject returns the user or the service account that receives the rights.
func (o *options) subject() (rbacv1.Subject, error) {
	switch {
	case (o.user == "") == (o.serviceAccount == ""):
		return rbacv1.Subject{}, errors.New("name the credentials of serve with --service-account NAMESPACE/NAME or " +
			"with --user NAME")
	case o.user != "":
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: o.user}, nil
	}
	namespace, name, ok := strings.Cut(o.serviceAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return rbacv1.Subject{}, fmt.Errorf("--service-account %q does not have the form NAMESPACE/NAME",
			o.serviceAccount)
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, nil
}

// fleetOptions returns the options of the fleet that serve would have.
func (o *options) fleetOptions() *fleet.Options {
	resources := o.resources
	if o.localRBAC {
		resources = slices.Concat(resources, access.PolicyResources())
	}
	return &fleet.Options{Resources: resources, Except: o.except, Scope: fleet.Scope{Namespace: o.namespace}}
}

// byName adds the resources that the patterns name. It needs no cluster, and so no pattern
// may have a star.
func (o *options) byName(to *requiredRights) error {
	opts := o.fleetOptions()
	var served []kube.Resource
	for _, pattern := range opts.Resources {
		if strings.Contains(pattern, "*") {
			return fmt.Errorf("pattern %q of resources: what it selects depends on the cluster: name the cluster "+
				"with --context or --kubeconfig, or use patterns without a star", pattern)
		}
		served = append(served, servedAs(schema.ParseGroupResource(pattern)))
	}
	if o.namespace == "" {
		served = append(served, servedAs(schema.GroupResource{Group: "apiextensions.k8s.io",
			Resource: "customresourcedefinitions"}),
			servedAs(schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}))
	}
	var err error
	to.mirrored, to.metadata, err = opts.Selected(served)
	return err
}

// servedAs returns a resource of a cluster that is not known. Its version does not matter.
func servedAs(r schema.GroupResource) kube.Resource {
	return kube.Resource{GroupVersionResource: r.WithVersion(""), Namespaced: true,
		Verbs: []string{"get", "list", "watch"}}
}

// byDiscovery adds the resources of the cluster that the patterns select.
func (o *options) byDiscovery(ctx context.Context, to *requiredRights, trouble io.Writer) error {
	cluster, err := settings.Connect(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	defer cluster.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	served, err := cluster.Resources(ctx)
	if len(served) == 0 {
		return fmt.Errorf("resources of the cluster: %w", errors.Join(err, errNothingServed))
	}
	if err != nil {
		fmt.Fprintf(trouble, "watershed: resources of these groups are left out: %v\n", err)
	}
	if to.mirrored, to.metadata, err = o.fleetOptions().Selected(served); err == nil && len(to.mirrored) == 0 {
		err = errors.New("the patterns select no resource that the cluster serves")
	}
	return err
}

// errNothingServed means that a cluster has no resources.
var errNothingServed = errors.New("the cluster serves nothing")

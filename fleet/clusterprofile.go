// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// What SIG Multicluster calls things, in KEP-4322 and KEP-5339.
const (
	profileGroup          = "multicluster.x-k8s.io"
	profileVersion        = "v1alpha1"
	profileResource       = "clusterprofiles"
	profileLabel          = "x-k8s.io/cluster-profile"
	profileNamespaceLabel = "x-k8s.io/cluster-profile-namespace"
	consumerLabel         = "x-k8s.io/cluster-inventory-consumer"
	profileSecretKey      = "Config"
	profileArgsExtension  = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
	profileEnvExtension   = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
)

// ClusterProfilesOptions tune [ClusterProfiles]. The zero value, and nil, are the
// defaults, with which no cluster can be reached: Plugins or Consumer are needed.
type ClusterProfilesOptions struct {
	// Namespace is where the profiles are, and their Secrets. Default: everywhere.
	Namespace string
	// LabelSelector says which profiles, in the syntax of kubectl. Default: all.
	LabelSelector string
	// Version is the version of the API to read. Default v1alpha1, the only one in
	// which providers may have their older name.
	Version string
	// Plugins are what gets credentials, by the name of the access provider that a
	// profile has. Of a profile's providers, the first that is here counts.
	Plugins map[string]AccessPlugin
	// Consumer is the name under which cluster managers know this program, if they
	// are to give it kubeconfigs in Secrets. They count for profiles without a
	// provider that has a plugin. Default: Secrets are not read.
	Consumer string
	// Logger is for the informers. Default: slog.Default().
	Logger *slog.Logger
}

// AccessPlugin is a command that gets credentials for clusters, as in a kubeconfig.
type AccessPlugin struct {
	// Exec is the command. It cannot ask anybody. What a profile has to say to it, in
	// the extension client.authentication.k8s.io/exec, is put into its Config.
	Exec clientcmdapi.ExecConfig
	// ProfileArgs and ProfileEnv let a profile add arguments to the command, and
	// variables that Exec does not set. Default: no, since who may write a profile is
	// not to decide what runs in this program.
	ProfileArgs, ProfileEnv bool
}

// ClusterProfiles is a [Directory] of the ClusterProfiles on a hub, the inventory of
// SIG Multicluster. Where the hub does not have that resource, there are no clusters
// until it has.
//
// A cluster's name in the fleet is <namespace>.<name> of the profile, since two
// namespaces may have profiles of the same name. The name of a namespace has no dot,
// so that no two clusters become one.
//
// Credentials come from a plugin, as KEP-5339 has it: the profile's
// status.accessProviders, once called credentialProviders, say where the cluster is
// and which kind of plugin can get credentials for it. Or they come from a Secret,
// as KEP-4322 has it: it has the label x-k8s.io/cluster-profile with the profile's
// name and, if that is in another namespace, x-k8s.io/cluster-profile-namespace, and
// a kubeconfig under Config. It must be meant for [ClusterProfilesOptions.Consumer]:
// x-k8s.io/cluster-inventory-consumer is a label of its namespace or, next to the
// profile, of itself. If Namespace is set, namespaces are not looked at, and all
// Secrets in this one count that are not for somebody else. Kubeconfigs that need
// commands or files are not accepted, for the reason that [ClusterAPI] gives.
//
// What a profile says about the cluster's health is not looked at: who follows a
// cluster notices.
type ClusterProfiles struct {
	hub  *kube.Cluster
	opts ClusterProfilesOptions
}

// NewClusterProfiles returns the directory of the profiles on hub. A nil opts means
// the defaults.
func NewClusterProfiles(hub *kube.Cluster, opts *ClusterProfilesOptions) *ClusterProfiles {
	c := &ClusterProfiles{hub: hub}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Version == "" {
		c.opts.Version = profileVersion
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	return c
}

// Follow tells the clusters. See [Directory].
func (c *ClusterProfiles) Follow(ctx context.Context, tell func([]Entry)) error {
	if c.hub == nil {
		return errors.New("directory of cluster profiles: no hub")
	}
	v := profilesView{directory: c}
	parts, err := v.open()
	if err != nil {
		return fmt.Errorf("directory of cluster profiles in %s: %w", c.hub.Name(), err)
	}
	told := teller{tell: tell}
	return followHub(ctx, func() { told.update(v.entries()) }, parts...)
}

// profilesView is what was read from the hub.
type profilesView struct {
	directory  *ClusterProfiles
	profiles   *watershed.Informer[*unstructured.Unstructured]
	secrets    *watershed.Informer[*corev1.Secret]                // nil: they are not read
	namespaces *watershed.Informer[*metav1.PartialObjectMetadata] // nil: all count
	parsed     secretEntries
}

func (v *profilesView) open() (parts []hubPart, err error) {
	hub, o := v.directory.hub, v.directory.opts
	v.profiles, err = watershed.New(hub, &watershed.Options[*unstructured.Unstructured]{
		Resource:      schema.GroupVersionResource{Group: profileGroup, Version: o.Version, Resource: profileResource},
		Namespace:     o.Namespace,
		LabelSelector: o.LabelSelector,
		Logger:        o.Logger,
	})
	if err != nil {
		return nil, err
	}
	parts = append(parts, hubPartOf(v.profiles))
	if o.Consumer == "" {
		return parts, nil
	}
	v.secrets, err = watershed.New(hub, &watershed.Options[*corev1.Secret]{
		Namespace:     o.Namespace,
		LabelSelector: profileLabel,
		Logger:        o.Logger,
	})
	if err != nil {
		return nil, err
	}
	parts = append(parts, hubPartOf(v.secrets))
	if o.Namespace != "" {
		return parts, nil
	}
	v.namespaces, err = watershed.New(hub, &watershed.Options[*metav1.PartialObjectMetadata]{
		Resource:      corev1.SchemeGroupVersion.WithResource("namespaces"),
		LabelSelector: consumerLabel + "=" + o.Consumer,
		Logger:        o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return append(parts, hubPartOf(v.namespaces)), nil
}

// entries are the clusters of all profiles.
func (v *profilesView) entries() []Entry {
	secrets := v.kubeconfigs()
	defer v.parsed.done()
	var entries []Entry
	for key, profile := range v.profiles.All() {
		e := v.entry(profile, secrets[key])
		e.Name = profile.GetNamespace() + "." + profile.GetName()
		if e.Err != nil {
			e.Err = fmt.Errorf("cluster profile %s in %s: %w", key, v.directory.hub.Name(), e.Err)
		}
		entries = append(entries, e)
	}
	return entries
}

// entry is a profile's cluster, without a name.
func (v *profilesView) entry(profile *unstructured.Unstructured, secrets []*corev1.Secret) Entry {
	offers, err := offersOf(profile)
	if err != nil {
		return Entry{Err: err}
	}
	plugins := v.directory.opts.Plugins
	for _, o := range offers {
		if plugin, ok := plugins[o.Name]; ok {
			cfg, err := plugin.config(&o.Cluster)
			e := entryOf("", cfg, err)
			if e.Err != nil {
				e.Err = fmt.Errorf("access provider %s: %w", o.Name, e.Err)
			}
			return e
		}
	}
	switch len(secrets) {
	case 1:
		e := v.parsed.of(secrets[0], profileSecretKey)
		if e.Err != nil {
			e.Err = fmt.Errorf("secret %s/%s: %w", secrets[0].Namespace, secrets[0].Name, e.Err)
		}
		return e
	case 0:
		return Entry{Err: fmt.Errorf("no credentials: it offers the access providers %s, there are plugins for %s, and %s",
			listed(offerNames(offers)), listed(slices.Sorted(maps.Keys(plugins))), v.noSecret())}
	default:
		return Entry{Err: fmt.Errorf("%d secrets have its kubeconfig, %s/%s for one: there must not be more than one",
			len(secrets), secrets[0].Namespace, secrets[0].Name)}
	}
}

// noSecret says why there is none.
func (v *profilesView) noSecret() string {
	if v.secrets == nil {
		return "secrets are not read"
	}
	return fmt.Sprintf("no secret has its kubeconfig for consumer %q", v.directory.opts.Consumer)
}

// kubeconfigs are the Secrets that count, by the key of their profile.
func (v *profilesView) kubeconfigs() map[string][]*corev1.Secret {
	if v.secrets == nil {
		return nil
	}
	found := map[string][]*corev1.Secret{}
	for _, s := range v.secrets.All() {
		namespace := s.Namespace
		if other := s.Labels[profileNamespaceLabel]; other != "" {
			namespace = other
		}
		if v.meant(s, namespace) {
			key := namespace + "/" + s.Labels[profileLabel]
			found[key] = append(found[key], s)
		}
	}
	return found
}

// meant reports whether a Secret for a profile in a namespace is for this consumer.
func (v *profilesView) meant(s *corev1.Secret, namespace string) bool {
	if consumer, ok := s.Labels[consumerLabel]; ok && consumer != v.directory.opts.Consumer {
		return false
	} else if ok && namespace == s.Namespace {
		return true
	}
	if v.namespaces == nil {
		return true
	}
	_, ours := v.namespaces.Get(s.Namespace)
	return ours
}

// offer is how a profile says that its cluster can be reached.
type offer struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// offersOf has those with the newer name first.
func offersOf(profile *unstructured.Unstructured) ([]offer, error) {
	text, err := json.Marshal(profile.Object["status"])
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	var status struct {
		AccessProviders     []offer `json:"accessProviders"`
		CredentialProviders []offer `json:"credentialProviders"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return append(status.AccessProviders, status.CredentialProviders...), nil
}

func offerNames(offers []offer) []string {
	names := make([]string, 0, len(offers))
	for _, o := range offers {
		names = append(names, o.Name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// listed is names for people.
func listed(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

// config leads to a profile's cluster with the plugin's credentials.
func (p *AccessPlugin) config(cluster *clientcmdv1.Cluster) (*rest.Config, error) {
	if cluster.CertificateAuthority != "" {
		return nil, errors.New("a certificate authority in a file is not accepted from a hub")
	}
	exec := p.Exec.DeepCopy()
	if exec.InteractiveMode == "" {
		exec.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
	}
	if err := p.extend(exec, cluster.Extensions); err != nil {
		return nil, err
	}
	// As a kubeconfig, so that whatever client-go knows about them is done. That
	// includes what of the extensions is for the plugin.
	const name = "profile"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = clientcmdapi.NewCluster()
	if err := clientcmdlatest.Scheme.Convert(cluster, k.Clusters[name], nil); err != nil {
		return nil, errors.New("cluster cannot be read")
	}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: exec}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg, err := newReading().config(k, name)
	if err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil && cfg.ExecProvider.Config == nil {
		cfg.ExecProvider.Config = p.Exec.Config
	}
	return copyConfig(cfg), nil
}

// extend adds what the profile may add.
func (p *AccessPlugin) extend(exec *clientcmdapi.ExecConfig, extensions []clientcmdv1.NamedExtension) error {
	for _, x := range extensions {
		switch {
		case x.Name == profileArgsExtension && p.ProfileArgs:
			var args []string
			if err := json.Unmarshal(x.Extension.Raw, &args); err != nil {
				return fmt.Errorf("extension %s is no list of strings", x.Name)
			}
			exec.Args = append(exec.Args, args...)
		case x.Name == profileEnvExtension && p.ProfileEnv:
			var env map[string]string
			if err := json.Unmarshal(x.Extension.Raw, &env); err != nil {
				return fmt.Errorf("extension %s is no map of strings", x.Name)
			}
			for _, v := range exec.Env {
				delete(env, v.Name)
			}
			for _, name := range slices.Sorted(maps.Keys(env)) {
				exec.Env = append(exec.Env, clientcmdapi.ExecEnvVar{Name: name, Value: env[name]})
			}
		}
	}
	return nil
}

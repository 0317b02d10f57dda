// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// These names are defined by SIG Multicluster in KEP-4322 and KEP-5339.
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

// ClusterProfileOptions tune [ClusterProfile]. The zero value, and nil, are the
// defaults. They have no credentials for any cluster: set Plugins or Consumer.
type ClusterProfileOptions struct {
	// Namespace limits the directory to the profiles and Secrets in one namespace of
	// the hub. Default: all namespaces.
	Namespace string
	// LabelSelector limits the directory to the profiles that it matches, in kubectl's
	// syntax. Default: all profiles.
	LabelSelector string
	// Version is the version of the API to read. Default v1alpha1, the only version in
	// which access providers may have their older name.
	Version string
	// Plugins are the credential plugins by the name of the access provider. The first
	// access provider of a profile that has a plugin is used.
	Plugins map[string]AccessPlugin
	// Consumer is this program's name as a consumer of the inventory. Cluster managers
	// create Secrets with kubeconfigs for it. They are used for profiles without an
	// access provider that has a plugin. Default: Secrets are not read.
	Consumer string
	// Logger is used by the informers. Default: slog.Default().
	Logger *slog.Logger
}

// AccessPlugin is a command that returns credentials for clusters, as in a kubeconfig.
type AccessPlugin struct {
	// Exec is the command. It runs without a terminal. The profile's extension
	// client.authentication.k8s.io/exec becomes its Config.
	Exec clientcmdapi.ExecConfig
	// ProfileArgs lets a profile add arguments to the command. Default: no, because a
	// user with permission to write a profile must not decide what runs in this program.
	ProfileArgs bool
	// ProfileEnv lets a profile add environment variables that Exec does not set.
	// Default: no, for the same reason.
	ProfileEnv bool
}

// ClusterProfile is a [fleet.Directory] of the ClusterProfiles on a hub, the inventory
// API of SIG Multicluster. While the hub does not have that resource, the directory is
// empty.
//
// The name of a cluster in the fleet is <namespace>.<name> of the profile, because two
// namespaces may have profiles of the same name. Names of namespaces have no dot, so
// different profiles have different names.
//
// Credentials come from a plugin (KEP-5339) or from a Secret (KEP-4322). For a plugin,
// the profile's status.accessProviders, formerly credentialProviders, have the address
// of the cluster and the name of the provider. A Secret has the label
// x-k8s.io/cluster-profile with the name of the profile and a kubeconfig under the key
// Config. If it is not in the namespace of the profile, it also has the label
// x-k8s.io/cluster-profile-namespace. It must be for [ClusterProfileOptions.Consumer]:
// the label x-k8s.io/cluster-inventory-consumer is on the namespace of the Secret or,
// if the Secret is in the namespace of the profile, on the Secret. If Namespace is set,
// labels of namespaces are not read, and all Secrets in that namespace are used that are
// not labelled for another consumer. Kubeconfigs that need commands or files are
// rejected, for the reason given at [ClusterAPI].
//
// The health that a profile reports is ignored: the fleet observes its clusters itself.
type ClusterProfile struct {
	hub   *kube.Cluster
	opts  ClusterProfileOptions
	state hubState
}

// NewClusterProfile returns the directory of the ClusterProfiles on hub. A nil opts
// means the defaults.
func NewClusterProfile(hub *kube.Cluster, opts *ClusterProfileOptions) *ClusterProfile {
	c := &ClusterProfile{hub: hub}
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

// String returns a short name of the directory for log lines and errors.
func (c *ClusterProfile) String() string { return "ClusterProfiles on " + hubName(c.hub) }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (c *ClusterProfile) Err() error { return c.state.Err() }

// Follow reports the clusters. See [fleet.Directory].
func (c *ClusterProfile) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	if c.hub == nil {
		return errors.New("cluster profiles: no hub")
	}
	v := profileView{directory: c}
	parts, err := v.open()
	if err != nil {
		return fmt.Errorf("cluster profiles on %s: %w", c.hub.Name(), err)
	}
	n := notifier{notify: notify}
	return c.state.follow(ctx, c.hub, func() { n.update(v.entries()) }, parts...)
}

// profileView is the state of one Follow.
type profileView struct {
	directory *ClusterProfile
	profiles  *watershed.Informer[*unstructured.Unstructured]
	secrets   *watershed.Informer[*corev1.Secret] // nil if Secrets are not read
	// those of the consumer; nil if the labels are not read
	namespaces *watershed.Informer[*metav1.PartialObjectMetadata]
	parsed     secretEntries
}

// open creates the informers that the options need.
func (v *profileView) open() (parts []hubPart, err error) {
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

// entries returns the clusters of all profiles.
func (v *profileView) entries() []fleet.Entry {
	secrets := v.kubeconfigs()
	defer v.parsed.done()
	var entries []fleet.Entry
	for key, profile := range v.profiles.All() {
		e := v.entry(profile, secrets[key])
		e.Name = profile.GetNamespace() + "." + profile.GetName()
		e.Labels = joinLabels(propertiesOf(profile), profile.GetLabels())
		if e.Err != nil {
			e.Err = fmt.Errorf("cluster profile %s in %s: %w", key, v.directory.hub.Name(), e.Err)
		}
		entries = append(entries, e)
	}
	return entries
}

// entry returns the cluster of a profile, without a name.
func (v *profileView) entry(profile *unstructured.Unstructured, secrets []*corev1.Secret) fleet.Entry {
	providers, err := providersOf(profile)
	if err != nil {
		return fleet.Entry{Err: err}
	}
	plugins := v.directory.opts.Plugins
	for _, p := range providers {
		if plugin, ok := plugins[p.Name]; ok {
			cfg, err := plugin.config(&p.Cluster)
			e := newEntry("", cfg, err)
			if e.Err != nil {
				e.Err = fmt.Errorf("access provider %s: %w", p.Name, e.Err)
			}
			return e
		}
	}
	switch len(secrets) {
	case 1:
		e := v.parsed.entry(secrets[0], profileSecretKey)
		if e.Err != nil {
			e.Err = fmt.Errorf("secret %s/%s: %w", secrets[0].Namespace, secrets[0].Name, e.Err)
		}
		return e
	case 0:
		return fleet.Entry{Err: fmt.Errorf("no credentials: its access providers are %s, plugins exist for %s, and %s",
			listed(providerNames(providers)), listed(slices.Sorted(maps.Keys(plugins))), v.noSecret())}
	default:
		return fleet.Entry{Err: fmt.Errorf("%d secrets have a kubeconfig for it, among them %s/%s: delete all but one",
			len(secrets), secrets[0].Namespace, secrets[0].Name)}
	}
}

// noSecret returns the reason why a profile has no Secret, for an error message.
func (v *profileView) noSecret() string {
	if v.secrets == nil {
		return "secrets are not read"
	}
	return fmt.Sprintf("no secret has its kubeconfig for consumer %q", v.directory.opts.Consumer)
}

// kubeconfigs returns the Secrets for this consumer, by the key of their profile.
func (v *profileView) kubeconfigs() map[string][]*corev1.Secret {
	if v.secrets == nil {
		return nil
	}
	found := map[string][]*corev1.Secret{}
	for _, s := range v.secrets.All() {
		namespace := s.Namespace
		if other := s.Labels[profileNamespaceLabel]; other != "" {
			namespace = other
		}
		if v.isForConsumer(s, namespace) {
			key := namespace + "/" + s.Labels[profileLabel]
			found[key] = append(found[key], s)
		}
	}
	return found
}

// isForConsumer reports whether a Secret for a profile in a namespace is for this
// consumer.
func (v *profileView) isForConsumer(s *corev1.Secret, namespace string) bool {
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

// accessProvider is one way to access the cluster of a profile.
type accessProvider struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// providersOf returns the access providers of a profile, those under the newer name
// first.
func providersOf(profile *unstructured.Unstructured) ([]accessProvider, error) {
	text, err := json.Marshal(profile.Object["status"])
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	var status struct {
		AccessProviders     []accessProvider `json:"accessProviders"`
		CredentialProviders []accessProvider `json:"credentialProviders"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return append(status.AccessProviders, status.CredentialProviders...), nil
}

// propertiesOf returns the properties of a profile that can be labels: others have names or
// values that selectors cannot contain.
func propertiesOf(profile *unstructured.Unstructured) map[string]string {
	properties, _, err := unstructured.NestedSlice(profile.Object, "status", "properties")
	if err != nil {
		return nil
	}
	all := map[string]string{}
	for _, p := range properties {
		property, _ := p.(map[string]any)
		name, _ := property["name"].(string)
		value, ok := property["value"].(string)
		if ok && len(validation.IsQualifiedName(name)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			all[name] = value
		}
	}
	return all
}

func providerNames(providers []accessProvider) []string {
	names := make([]string, 0, len(providers))
	for _, p := range providers {
		names = append(names, p.Name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// listed formats names for an error message.
func listed(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

// config returns the configuration of a profile's cluster with the plugin's
// credentials.
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
	// By way of a kubeconfig client-go handles every field as usual, including the
	// extension for the plugin.
	const name = "profile"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = clientcmdapi.NewCluster()
	if err := clientcmdlatest.Scheme.Convert(cluster, k.Clusters[name], nil); err != nil {
		return nil, errors.New("cluster of the access provider cannot be converted") // the cause may quote a credential
	}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: exec}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg, err := newFileStates().config(k, name)
	if err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil && cfg.ExecProvider.Config == nil {
		cfg.ExecProvider.Config = p.Exec.Config
	}
	return copyConfig(cfg), nil
}

// extend adds the arguments and variables of the profile that the plugin accepts.
func (p *AccessPlugin) extend(exec *clientcmdapi.ExecConfig, extensions []clientcmdv1.NamedExtension) error {
	for _, x := range extensions {
		switch {
		case x.Name == profileArgsExtension && p.ProfileArgs:
			var args []string
			if err := json.Unmarshal(x.Extension.Raw, &args); err != nil {
				return fmt.Errorf("extension %s is not a list of strings", x.Name)
			}
			exec.Args = append(exec.Args, args...)
		case x.Name == profileEnvExtension && p.ProfileEnv:
			var env map[string]string
			if err := json.Unmarshal(x.Extension.Raw, &env); err != nil {
				return fmt.Errorf("extension %s is not a map of strings", x.Name)
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

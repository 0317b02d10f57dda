// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/kube"
)

// defaultInCluster is the name of the cluster of --in-cluster without a value.
const defaultInCluster = "in-cluster"

// Sources are the flags for the sources of clusters.
type Sources struct {
	Kubeconfig      string
	contexts        []string
	Directories     []string
	InCluster       string // the name of the cluster, "" if it is not mirrored
	clusterAPI      bool
	clusterProfiles bool
	profileConsumer string
	providerFile    string
	hubKubeconfig   string
	hubContext      string
	hubNamespace    string
}

func (o *Sources) declare(in config.Section) {
	in.String(&o.Kubeconfig, "sources.kubeconfig", "kubeconfig", "",
		"the `file` with the contexts to mirror (default the files in KUBECONFIG, else ~/.kube/config)").Reloads()
	in.Repeated(&o.contexts, "sources.contexts", "context",
		"a `context` to mirror; may be repeated (default every context)").Reloads()
	in.Repeated(&o.Directories, "sources.directories", "kubeconfig-dir",
		"a `directory` of kubeconfig files to mirror, one cluster for each file; may be repeated").Reloads()
	in.String(&o.InCluster, "sources.inCluster", "in-cluster", "",
		"mirror the cluster that serve runs in, under this `name`; needs a pod with a service account").
		Bare(defaultInCluster).Reloads()
	in.Bool(&o.clusterAPI, "sources.clusterAPI", "cluster-api", false,
		"mirror the clusters that Cluster API manages from the hub; needs the right to list and "+
			"watch Secrets there").Reloads()
	in.Bool(&o.clusterProfiles, "sources.clusterProfiles.enabled", "cluster-profiles", false,
		"mirror the clusters of the ClusterProfiles on the hub; needs --cluster-profile-consumer or "+
			"--cluster-profile-provider-file").Reloads()
	in.String(&o.profileConsumer, "sources.clusterProfiles.consumer", "cluster-profile-consumer", "",
		"the `name` of the inventory consumer whose Secrets have the kubeconfigs of ClusterProfiles").Reloads()
	in.String(&o.providerFile, "sources.clusterProfiles.providerFile", "cluster-profile-provider-file", "",
		"a JSON `file` with the credential plugins for the access providers of ClusterProfiles, in the format of "+
			"the cluster-inventory-api project").Reloads()
	in.String(&o.hubKubeconfig, "sources.hub.kubeconfig", "hub-kubeconfig", "",
		"the kubeconfig `file` of the hub (default the files in KUBECONFIG, else ~/.kube/config, else the service "+
			"account of the pod)").Reloads()
	in.String(&o.hubContext, "sources.hub.context", "hub-context", "",
		"the `context` of the hub (default the current context)").Reloads()
	in.String(&o.hubNamespace, "sources.hub.namespace", "hub-namespace", "",
		"read only this `namespace` of the hub (default all namespaces)").Reloads()
}

// OpenedSources are the opened sources of clusters.
type OpenedSources struct {
	Parts []directory.Part
	// Kubeconfig is the source of contexts, nil if contexts are not mirrored. contexts are
	// those of its contexts that are mirrored, nil if all are.
	Kubeconfig *directory.Kubeconfig
	Contexts   []string
}

// add adds a source, named after the setting that selects it. After a change of other settings
// of the source, such as the context of the hub, it is still the same source: its clusters stay
// until the source can be read.
func (s *OpenedSources) add(name string, d fleet.Directory) {
	s.Parts = append(s.Parts, directory.Part{Name: name, Directory: d})
}

// Join returns the directory of all clusters.
func (s *OpenedSources) Join(logger *slog.Logger) *directory.Join {
	return directory.NewJoin(s.Parts, &directory.JoinOptions{Logger: logger})
}

// Paths returns the absolute paths of the kubeconfig files whose contexts are mirrored.
func (s *OpenedSources) Paths() ([]string, error) {
	if s.Kubeconfig == nil {
		return nil, nil
	}
	paths := s.Kubeconfig.Paths()
	for i, path := range paths {
		var err error
		if paths[i], err = filepath.Abs(path); err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
	}
	return paths, nil
}

// Open returns the sources that the settings select. If two of them have a cluster of the same
// name, the cluster of the source that is opened first is used.
func (o *Sources) Open(logger *slog.Logger) (*OpenedSources, error) {
	s := &OpenedSources{Contexts: o.contexts}
	if o.usesContexts() {
		k, err := o.openKubeconfig(logger)
		if err != nil {
			return nil, err
		}
		s.Kubeconfig = k
		s.add("contexts", k)
	}
	for _, path := range o.Directories {
		if _, err := os.ReadDir(path); err != nil {
			return nil, fmt.Errorf("--kubeconfig-dir: %w: name a directory that exists, or a single file "+
				"with --kubeconfig", err)
		}
		s.add("directory "+path, directory.NewKubeconfigDir(path, &directory.KubeconfigDirOptions{Logger: logger}))
	}
	if o.InCluster != "" {
		if err := o.checkInCluster(); err != nil {
			return nil, err
		}
		s.add("in-cluster", directory.NewInCluster(o.InCluster, &directory.InClusterOptions{Logger: logger}))
	}
	if o.usesHub() {
		if err := o.openHub(s, logger); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// usesContexts reports whether contexts are mirrored: if a flag names them, or no other
// source is selected.
func (o *Sources) usesContexts() bool {
	other := len(o.Directories) > 0 || o.InCluster != "" || o.usesHub()
	return o.Kubeconfig != "" || len(o.contexts) > 0 || !other
}

func (o *Sources) usesHub() bool { return o.clusterAPI || o.clusterProfiles }

// validate refuses settings that would have no effect.
func (o *Sources) validate() error {
	for _, f := range []struct{ name, value string }{
		{"hub-kubeconfig", o.hubKubeconfig}, {"hub-context", o.hubContext}, {"hub-namespace", o.hubNamespace},
	} {
		if f.value != "" && !o.usesHub() {
			return config.About(f.name, "--%s has no effect without a source that reads the hub: add --cluster-api "+
				"or --cluster-profiles", f.name)
		}
	}
	for _, f := range []struct{ name, value string }{
		{"cluster-profile-consumer", o.profileConsumer}, {"cluster-profile-provider-file", o.providerFile},
	} {
		if f.value != "" && !o.clusterProfiles {
			return config.About(f.name, "--%s has no effect without --cluster-profiles: add it", f.name)
		}
	}
	if o.clusterProfiles && o.profileConsumer == "" && o.providerFile == "" {
		return config.About("cluster-profiles", "--cluster-profiles: no credentials for the clusters: add "+
			"--cluster-profile-consumer or --cluster-profile-provider-file")
	}
	return nil
}

// openKubeconfig returns the source of contexts. It returns an error if a context that
// the flags name does not exist.
func (o *Sources) openKubeconfig(logger *slog.Logger) (*directory.Kubeconfig, error) {
	opts := &directory.KubeconfigOptions{Logger: logger}
	if len(o.contexts) > 0 {
		opts.Contexts = o.contexts // nil means all
	}
	if o.Kubeconfig != "" {
		opts.Paths = []string{o.Kubeconfig}
	}
	k := directory.NewKubeconfig(opts)
	found, err := k.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: name another file with --kubeconfig, or another source of clusters (see "+
			"watershed serve --help)", err)
	}
	files := strings.Join(k.Paths(), ", ")
	if len(found) == 0 {
		return nil, fmt.Errorf("kubeconfig %s has no contexts: name another file with --kubeconfig", files)
	}
	for _, c := range found {
		if !c.Exists {
			return nil, fmt.Errorf("context %q does not exist in kubeconfig %s: %s", c.Name, files,
				existing(opts.Paths))
		}
	}
	return k, nil
}

// existing lists the contexts of kubeconfig files for an error message.
func existing(paths []string) string {
	all, err := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: paths}).Read()
	if err != nil || len(all) == 0 {
		return "it has none"
	}
	var names []string
	for _, c := range all[:min(len(all), 20)] {
		names = append(names, c.Name)
	}
	text := "it has " + strings.Join(names, ", ")
	if len(all) > len(names) {
		text += fmt.Sprintf(" and %d more", len(all)-len(names))
	}
	return text
}

// checkInCluster returns an error if serve does not run in a pod. Other errors may end
// while serve runs, and are logged then.
func (o *Sources) checkInCluster() error {
	if err := fleet.ValidateName(o.InCluster); err != nil {
		return fmt.Errorf("--in-cluster: %w", err)
	}
	if _, err := rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		return fmt.Errorf("--in-cluster: %w: run serve in a pod, or use --kubeconfig", err)
	}
	return nil
}

// openHub adds the sources that read the hub.
func (o *Sources) openHub(s *OpenedSources, logger *slog.Logger) error {
	var plugins map[string]directory.AccessPlugin
	if o.providerFile != "" {
		var err error
		if plugins, err = readAccessPlugins(o.providerFile); err != nil {
			return fmt.Errorf("--cluster-profile-provider-file: %w", err)
		}
	}
	hub, err := Connect(o.hubKubeconfig, o.hubContext)
	if err != nil {
		return fmt.Errorf("hub: %w: name the context of the hub with --hub-context, and its file with --hub-kubeconfig",
			err)
	}
	if o.clusterAPI {
		s.add("cluster-api", directory.NewClusterAPI(hub,
			&directory.ClusterAPIOptions{Namespace: o.hubNamespace, Logger: logger}))
	}
	if o.clusterProfiles {
		s.add("cluster-profiles", directory.NewClusterProfile(hub, &directory.ClusterProfileOptions{
			Namespace: o.hubNamespace, Consumer: o.profileConsumer, Plugins: plugins, Logger: logger,
		}))
	}
	return nil
}

// Connect returns the cluster of a context in a kubeconfig file, or in the files that kubectl reads if
// the file is "".
func Connect(kubeconfig, context string) (*kube.Cluster, error) {
	if kubeconfig != "" {
		return kube.FromKubeconfig(kubeconfig, context)
	}
	return kube.FromContext(context)
}

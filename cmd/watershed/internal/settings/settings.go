// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package settings has the settings of watershed serve: their flags, keys and defaults, the rules that
// they must satisfy, and what they open, such as sources of clusters, files and listeners. Other
// commands use them too: check takes all of them, config prints them, and disk reads the same files.
package settings

import (
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/usage"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// configVariable is the environment variable of the flag --config.
const configVariable = "WATERSHED_CONFIG"

// The values of --log-format.
const (
	LogText = "text"
	LogJSON = "json"
)

// Settings are the settings of serve. Each is a flag, an environment variable and a key of
// the configuration file, see package config. They are not copied: the declarations point to
// them.
type Settings struct {
	Keys *config.Set
	// File is the configuration file, "" if there is none, and Content is what it had when
	// the settings were loaded.
	File    string
	Content []byte

	State             state.Dir
	Sources           Sources
	Listening         Listening
	Access            Access
	Audit             Audit
	Tracing           Tracing
	Storage           Storage
	Group             Group
	Peers             Peers
	Listen            string
	Resources, Except []string
	expendable        []string
	Scope             fleet.Scope
	dropManagedFields bool
	facets            []string
	PassThrough       bool
	history           int64 // MiB
	maxObjects        int   // of one cluster
	maxMemory         int64 // of one cluster, MiB
	MemoryLimit       int64 // of the process, MiB
	verifyEvery       time.Duration
	pprof             string
	metricsListen     string
	LogFormat         string
}

// DefaultResources returns the default patterns of resources to mirror.
func DefaultResources() []string {
	return []string{"*", "events", "events.events.k8s.io", "leases.coordination.k8s.io"}
}

// New returns the defaults.
func New() *Settings {
	o := &Settings{Keys: config.NewSet()}
	o.declare(o.Keys)
	return o
}

// declare declares the settings, in the order of the documentation.
func (o *Settings) declare(keys *config.Set) {
	listening := keys.Section("Address, certificates and connections")
	listening.String(&o.Listen, "listen", "listen", "127.0.0.1:7443",
		"the `address` to serve at, such as :7443 for all addresses of this machine; port 0 is any that is free")
	listening.String(&o.metricsListen, "metricsListen", "metrics-listen", "", "an `address` with a host that serves "+
		"/metrics without TLS and access control, for Prometheus (default: only at --listen, with access control)")
	o.Listening.declare(listening)
	o.Sources.declare(keys.Section("Clusters"))
	o.declareMirror(keys.Section("What is mirrored"))
	o.declareLimits(keys.Section("Memory and limits"))
	files := keys.Section("Files")
	files.String(&o.State.Path, "stateDir", "state-dir", "", state.Usage)
	o.Storage.declare(files)
	several := keys.Section("Several replicas")
	o.Group.declare(several)
	o.Peers.declare(several)
	access := keys.Section("Who may read, and pass-through")
	o.Access.declare(access)
	access.Bool(&o.PassThrough, "passThrough", "pass-through", false, "pass requests that the copy cannot answer, "+
		"such as writes, logs and exec, on to the cluster with the caller's own token")
	logs := keys.Section("Log, audit log, traces and profiles")
	logs.String(&o.LogFormat, "logFormat", "log-format", LogText, "the `format` of the log: text or json")
	o.Audit.declare(logs)
	o.Tracing.declare(logs)
	logs.String(&o.pprof, "pprof", "pprof", "", "a loopback `address` that serves Go's profiles (default none)")
}

// facetsOff is the default of --facets.
const facetsOff = "none"

// declareMirror declares what of the clusters is mirrored.
func (o *Settings) declareMirror(in config.Section) {
	in.Strings(&o.Resources, "mirror.resources", "resources", DefaultResources(),
		"`patterns` of resources to mirror: pods, deployments.apps, *.apps or *; secrets, events and leases are "+
			"mirrored only if a pattern names them without a star").Reloads()
	in.Strings(&o.Except, "mirror.except", "except", nil, "`patterns` of resources not to mirror").Reloads()
	in.Strings(&o.expendable, "mirror.expendable", "expendable", nil,
		"`patterns` of resources that are no longer mirrored if the memory of the process is scarce, "+
			"see --memory-limit").Reloads()
	in.String(&o.Scope.Namespace, "mirror.namespace", "namespace", "",
		"mirror one `namespace` only, and no cluster-scoped resources; for credentials that are limited "+
			"to a namespace").Short("n")
	in.String(&o.Scope.LabelSelector, "mirror.selector", "selector", "",
		"mirror only objects that a label `selector` matches").Short("l")
	in.Bool(&o.dropManagedFields, "mirror.dropManagedFields", "drop-managed-fields", false,
		"do not keep metadata.managedFields: responses do not have it")
	in.Strings(&o.facets, "mirror.facets", "facets", []string{facetsOff},
		"`values` of objects to keep outside their packed bytes, for queries (no request reads them yet): none, or "+
			"default, and RESOURCE:PATH for others, such as certificates.cert-manager.io:.status.notAfter")
	in.Duration(&o.verifyEvery, "verifyEvery", "verify-every", 0, "how often to compare each mirrored resource "+
		"with its cluster and repair it if it differs, such as 6h; see watershed verify (default never)").
		AtLeast(0, "use 0 for never")
}

// declareLimits declares the limits of memory.
func (o *Settings) declareLimits(in config.Section) {
	in.Int64(&o.history, "limits.historyMiB", "history", 256,
		"how many `MiB` of past changes to keep for clients that resume a watch").
		AtLeast(1, "clients could not resume a watch").Reloads()
	in.Int(&o.maxObjects, "limits.clusterObjects", "max-cluster-objects", 0,
		"how many objects of one cluster to keep; what exceeds it is not mirrored (default 5000000)").
		AtLeast(0, "use 0 for the default").Reloads()
	in.Int64(&o.maxMemory, "limits.clusterMemoryMiB", "max-cluster-memory", 0,
		"how many `MiB` the objects of one cluster may take (default half of the memory limit, or 8192 without one)").
		AtLeast(0, "use 0 for the default").Reloads()
	in.Int64(&o.MemoryLimit, "limits.memoryMiB", "memory-limit", 0, "how many `MiB` the process may use; near the "+
		"limit it reduces caches, then history, drops what is --expendable, and then mirrors nothing further "+
		"(default GOMEMLIMIT, else 90 % of the container's memory, else none)").
		AtLeast(0, "use 0 for the default")
}

// AddFlags adds the flag of the configuration file and the flags of the settings. The flags of the
// command are then shown in the order of their declarations.
func (o *Settings) AddFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&o.File, "config", "", "a `file` with settings; flags and environment variables "+
		"(WATERSHED_LISTEN for --listen) have precedence; most changes of the file take effect while serve runs "+
		"(default $"+configVariable+")")
	usage.SetSection(flags.Lookup("config"), "Configuration file")
	o.Keys.AddTo(flags)
}

// Load reads the configuration file and the environment, and checks the settings. The flags
// have been parsed.
func (o *Settings) Load() error {
	if o.File == "" {
		o.File = os.Getenv(configVariable)
	}
	if o.File != "" {
		content, err := config.ReadFile(o.File)
		if err != nil {
			return err
		}
		o.Content = content
	}
	return o.Use(o.Content)
}

// Use determines the settings from the flags, the environment and the content of the file, and
// checks them.
func (o *Settings) Use(content []byte) error {
	o.Content = content
	err := o.Keys.Load(o.File, content, os.Getenv)
	if err != nil {
		return err
	}
	return o.Keys.Locate(o.validate())
}

// validate returns all errors that the declarations of the settings cannot express.
func (o *Settings) validate() error {
	var all config.Problems
	add := func(err error) {
		if err != nil {
			all = append(all, err)
		}
	}
	if o.LogFormat != LogText && o.LogFormat != LogJSON {
		add(config.About("log-format", "--log-format %s: use text or json", o.LogFormat))
	}
	add(o.Listening.validate())
	add(o.Storage.validate())
	add(o.Sources.validate())
	add(o.Access.validate())
	add(o.Group.validate())
	add(o.Peers.validate(o.Group.Name))
	add(o.Tracing.validate())
	for _, one := range []struct {
		flag string
		opts fleet.Options
	}{
		{"resources", fleet.Options{Resources: o.Resources}}, {"except", fleet.Options{Except: o.Except}},
		{"expendable", fleet.Options{Except: o.expendable}},
		{"facets", fleet.Options{Facets: o.facets}},
		{"namespace", fleet.Options{Scope: fleet.Scope{Namespace: o.Scope.Namespace}}},
		{"selector", fleet.Options{Scope: fleet.Scope{LabelSelector: o.Scope.LabelSelector}}},
	} {
		if _, _, err := one.opts.Selected(nil); err != nil {
			add(config.About(one.flag, "--%s: %v", one.flag, err))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// Labels returns the labels that the configuration file has for clusters, by their names.
func (o *Settings) Labels() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, c := range o.Keys.Clusters {
		all[c.Name] = c.Labels
	}
	return all
}

// FleetOptions returns the options of the fleet.
func (o *Settings) FleetOptions(logger *slog.Logger) *fleet.Options {
	opts := &fleet.Options{Resources: o.Access.Mirrored(o.Resources), Except: o.Except, Expendable: o.expendable,
		Scope: o.Scope, History: o.history << 20, VerifyEvery: o.verifyEvery, Facets: o.facets,
		Logger: logger}
	opts.Limits.Objects, opts.Limits.Bytes = o.maxObjects, o.maxMemory<<20
	if o.dropManagedFields {
		opts.Drop = wire.ManagedFields
	}
	return opts
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// configVariable is the environment variable of the flag --config.
const configVariable = "WATERSHED_CONFIG"

// serveOptions are the settings of serve. Each is a flag, an environment variable and a key of
// the configuration file, see package config. They are not copied: the declarations point to
// them.
type serveOptions struct {
	keys *config.Set
	// file is the configuration file, "" if there is none, and content is what it had when
	// the options were loaded.
	file    string
	content []byte

	state             state
	sources           sourceOptions
	listening         listenOptions
	access            accessOptions
	audit             auditOptions
	tracing           tracingOptions
	storage           storageOptions
	listen            string
	resources, except []string
	expendable        []string
	scope             fleet.Scope
	dropManagedFields bool
	passThrough       bool
	history           int64 // MiB
	maxObjects        int   // of one cluster
	maxMemory         int64 // of one cluster, MiB
	memoryLimit       int64 // of the process, MiB
	verifyEvery       time.Duration
	pprof             string
	metricsListen     string
	logFormat         string
	// area shows the progress of the first sync below the log, nil if the log does not go to
	// a terminal.
	area *terminal.Area
}

// newServeOptions returns the defaults.
func newServeOptions() *serveOptions {
	o := &serveOptions{keys: config.NewSet()}
	o.declare(o.keys)
	return o
}

// declare declares the settings, in the order of the documentation.
func (o *serveOptions) declare(keys *config.Set) {
	keys.String(&o.listen, "listen", "listen", "127.0.0.1:7443", "the `address` to serve at, such as :7443 for all addresses of this machine; port 0 is any that is free")
	keys.String(&o.state.dir, "stateDir", "state-dir", "", stateUsage)
	o.listening.declare(keys)
	o.sources.declare(keys)
	keys.Strings(&o.resources, "mirror.resources", "resources", defaultResources(),
		"`patterns` of resources to mirror: pods, deployments.apps, *.apps or *; secrets, events and leases are mirrored only if a pattern names them without a star").Reloads()
	keys.Strings(&o.except, "mirror.except", "except", nil, "`patterns` of resources not to mirror").Reloads()
	keys.Strings(&o.expendable, "mirror.expendable", "expendable", nil, "`patterns` of resources that are no longer mirrored if the memory of the process is scarce, see --memory-limit").Reloads()
	keys.String(&o.scope.Namespace, "mirror.namespace", "namespace", "", "mirror one `namespace` only, and no cluster-scoped resources; for credentials that are limited to a namespace").Short("n")
	keys.String(&o.scope.LabelSelector, "mirror.selector", "selector", "", "mirror only objects that a label `selector` matches").Short("l")
	keys.Bool(&o.dropManagedFields, "mirror.dropManagedFields", "drop-managed-fields", false, "do not keep metadata.managedFields: responses do not have it")
	keys.Int64(&o.history, "limits.historyMiB", "history", 256, "how many `MiB` of past changes to keep for clients that resume a watch").
		AtLeast(1, "clients could not resume a watch").Reloads()
	keys.Int(&o.maxObjects, "limits.clusterObjects", "max-cluster-objects", 0, "how many objects of one cluster to keep; what exceeds it is not mirrored (default 5000000)").
		AtLeast(0, "use 0 for the default").Reloads()
	keys.Int64(&o.maxMemory, "limits.clusterMemoryMiB", "max-cluster-memory", 0, "how many `MiB` the objects of one cluster may take (default half of the memory limit, or 8192 without one)").
		AtLeast(0, "use 0 for the default").Reloads()
	keys.Int64(&o.memoryLimit, "limits.memoryMiB", "memory-limit", 0, "how many `MiB` the process may use; near the limit it reduces caches, then history, drops what is --expendable, and then mirrors nothing further (default GOMEMLIMIT, else 90 % of the container's memory, else none)").
		AtLeast(0, "use 0 for the default")
	keys.Duration(&o.verifyEvery, "verifyEvery", "verify-every", 0, "how often to compare each mirrored resource with its cluster and repair it if it differs, such as 6h; see watershed verify (default never)").
		AtLeast(0, "use 0 for never")
	o.storage.declare(keys)
	o.access.declare(keys)
	o.audit.declare(keys)
	o.tracing.declare(keys)
	keys.Bool(&o.passThrough, "passThrough", "pass-through", false, "pass requests that the copy cannot answer, such as writes, logs and exec, on to the cluster with the caller's own token")
	keys.String(&o.metricsListen, "metricsListen", "metrics-listen", "", "an `address` with a host that serves /metrics without TLS and access control, for Prometheus (default: only at --listen, with access control)")
	keys.String(&o.logFormat, "logFormat", "log-format", logText, "the `format` of the log: text or json")
	keys.String(&o.pprof, "pprof", "pprof", "", "a loopback `address` that serves Go's profiles (default none)")
}

// addFlags adds the flags of the settings, and that of the configuration file.
func (o *serveOptions) addFlags(flags *pflag.FlagSet) {
	o.keys.AddTo(flags)
	flags.StringVar(&o.file, "config", "", "a `file` with settings; flags and environment variables (WATERSHED_LISTEN for --listen) have precedence; most changes of the file take effect while serve runs (default $"+configVariable+")")
}

// load reads the configuration file and the environment, and checks the settings. The flags
// have been parsed.
func (o *serveOptions) load() error {
	if o.file == "" {
		o.file = os.Getenv(configVariable)
	}
	if o.file != "" {
		content, err := config.ReadFile(o.file)
		if err != nil {
			return err
		}
		o.content = content
	}
	return o.use(o.content)
}

// use determines the settings from the flags, the environment and the content of the file, and
// checks them.
func (o *serveOptions) use(content []byte) error {
	o.content = content
	err := o.keys.Load(o.file, content, os.Getenv)
	if err != nil {
		return err
	}
	return o.keys.Locate(o.validate())
}

// validate returns all errors that the declarations of the settings cannot express.
func (o *serveOptions) validate() error {
	var all config.Problems
	add := func(err error) {
		if err != nil {
			all = append(all, err)
		}
	}
	if o.logFormat != logText && o.logFormat != logJSON {
		add(config.About("log-format", "--log-format %s: use text or json", o.logFormat))
	}
	add(o.listening.validate())
	add(o.storage.validate())
	add(o.sources.validate())
	add(o.access.validate())
	add(o.tracing.validate())
	for _, one := range []struct {
		flag string
		opts fleet.Options
	}{
		{"resources", fleet.Options{Resources: o.resources}}, {"except", fleet.Options{Except: o.except}}, {"expendable", fleet.Options{Except: o.expendable}},
		{"namespace", fleet.Options{Scope: fleet.Scope{Namespace: o.scope.Namespace}}}, {"selector", fleet.Options{Scope: fleet.Scope{LabelSelector: o.scope.LabelSelector}}},
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

// labels returns the labels that the configuration file has for clusters, by their names.
func (o *serveOptions) labels() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, c := range o.keys.Clusters {
		all[c.Name] = c.Labels
	}
	return all
}

// fleetOptions returns the options of the fleet.
func (o *serveOptions) fleetOptions(logger *slog.Logger) *fleet.Options {
	opts := &fleet.Options{Resources: o.access.mirrored(o.resources), Except: o.except, Expendable: o.expendable, Scope: o.scope, History: o.history << 20, VerifyEvery: o.verifyEvery, Logger: logger}
	opts.Limits.Objects, opts.Limits.Bytes = o.maxObjects, o.maxMemory<<20
	if o.dropManagedFields {
		opts.Drop = wire.ManagedFields
	}
	return opts
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

// reloadPeriod is how often the configuration file is read. Tests change it.
var reloadPeriod = 2 * time.Second

// reload applies changes of the configuration file while serve runs. A file with an error
// changes nothing.
type reload struct {
	// started are the settings at the start, and now those of the last file without an error.
	// Settings that need a restart are those of started.
	started, now *serveOptions
	clusters     *directory.Join
	replica      *guarded
	front        *serving.Server
	logger       *slog.Logger
	// announced is what other commands can read about the server.
	announced server
}

// run follows the configuration file, if there is one, until ctx ends. A SIGHUP makes it read
// the file at once. Without a file the signal does not end the server, unless the server runs in
// a terminal: then the signal means that the terminal was closed.
func (r *reload) run(ctx context.Context) error {
	if r.now.file == "" && terminal.Is(os.Stdin) {
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for r.now.file == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			r.logger.Warn("nothing to reload: serve has no --config")
		}
	}
	config.Follow(ctx, r.now.file, r.now.content, reloadPeriod, hangups, r.changed, r.reject)
	return nil
}

// changed applies a new content of the file. It returns an error if that has changed nothing.
func (r *reload) changed(content []byte) error {
	next := newServeOptions()
	next.file = r.now.file
	err := next.keys.CopyFlags(r.started.keys)
	if err == nil {
		err = next.use(content)
	}
	if err == nil {
		err = next.state.find() // as at the start
	}
	if err != nil {
		return err
	}
	return r.apply(next)
}

// reject records that the content of the file is not in effect.
func (r *reload) reject(err error) {
	texts := []string{err.Error()}
	var problems config.Problems
	if errors.As(err, &problems) {
		texts = problems.Texts()
	}
	r.logger.Error("configuration not reloaded: the settings stay as they are", "file", r.now.file, "errors", strings.Join(texts, "; "))
	r.replica.problems.reject(r.now.file, texts)
	is := *r.announced.Configuration
	is.Errors = texts
	r.announced.Configuration = &is
	r.update()
}

// apply makes settings effective. If it returns an error, it has changed nothing.
func (r *reload) apply(next *serveOptions) error {
	live, restart := r.differences(next)
	var opened *sources
	if slices.ContainsFunc(live, func(path string) bool { return strings.HasPrefix(path, "sources.") }) {
		var err error
		if opened, err = next.sources.open(r.logger); err != nil {
			return next.keys.Locate(err)
		}
	}
	err := r.replica.fleet.Reconfigure(r.tuning(next))
	if err == nil {
		err = r.replica.control.Cross(next.access.crossing())
	}
	if err != nil { // impossible: the patterns have been checked
		return err
	}
	r.front.Limit(next.listening.limits())
	if r.replica.audit != nil {
		r.replica.audit.Rotate(next.audit.maxSize<<20, next.audit.maxBackups)
	}
	if opened != nil {
		r.clusters.Use(opened.parts)
		if err := r.describe(opened); err != nil {
			r.logger.Error("cannot announce the sources of clusters", "err", err)
		}
	}
	r.clusters.Label(next.labels())
	r.replica.problems.accept()
	r.now = next
	attributes := []any{"file", next.file}
	if len(live) > 0 {
		attributes = append(attributes, "changed", strings.Join(live, ", "))
	}
	r.logger.Info("configuration reloaded", attributes...)
	if len(restart) > 0 {
		r.logger.Warn("some changes of the configuration have no effect yet: restart to apply them", "file", next.file, "keys", strings.Join(restart, ", "))
	}
	r.announced.Configuration = &configurationState{File: next.file, Loaded: time.Now(), Restart: restart}
	r.update()
	return nil
}

// differences returns the keys that have changed since the last file and take effect now, and
// those whose values differ from the ones in effect until a restart.
func (r *reload) differences(next *serveOptions) (live, restart []string) {
	for _, k := range next.keys.Changes(r.now.keys) {
		if k.Live {
			live = append(live, k.Path)
		}
	}
	for _, k := range next.keys.Changes(r.started.keys) {
		if !k.Live {
			restart = append(restart, k.Path)
		}
	}
	if !reflect.DeepEqual(next.keys.Clusters, r.now.keys.Clusters) {
		live = append(live, "clusters")
	}
	return live, restart
}

// tuning returns the options of the fleet that can change while it runs.
func (r *reload) tuning(next *serveOptions) fleet.Tuning {
	opts := next.fleetOptions(nil)
	return fleet.Tuning{Resources: r.started.access.mirrored(next.resources), Except: opts.Except, Expendable: opts.Expendable, Limits: opts.Limits, History: opts.History}
}

// announce writes what other commands can read about the server, at the start.
func (r *reload) announce(opened *sources) (withdraw func(), err error) {
	if r.started.file != "" {
		r.announced.Configuration = &configurationState{File: r.started.file, Loaded: time.Now()}
	}
	if err := r.describe(opened); err != nil {
		return nil, err
	}
	return r.started.state.announce(r.announced)
}

// describe records the sources of clusters.
func (r *reload) describe(opened *sources) error {
	paths, err := opened.paths()
	if err != nil {
		return err
	}
	r.announced.Kubeconfig, r.announced.Contexts = paths, opened.contexts
	return nil
}

// update writes what other commands can read about the server again.
func (r *reload) update() {
	if _, err := r.started.state.announce(r.announced); err != nil {
		r.logger.Error("cannot announce the state of the configuration", "err", err)
	}
}

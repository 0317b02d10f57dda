// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

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
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/terminal"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

// ReloadPeriod is how often the configuration file is read. Tests change it.
var ReloadPeriod = 2 * time.Second

// reload applies changes of the configuration file while serve runs. A file with an error
// changes nothing.
type reload struct {
	// started are the settings at the start, and now those of the last file without an error.
	// Settings that need a restart are those of started.
	started, now *settings.Settings
	clusters     *directory.Join
	replica      *guarded
	front        *serving.Server
	logger       *slog.Logger
	// announced is what other commands can read about the server.
	announced state.Server
}

// run follows the configuration file, if there is one, until ctx ends. A SIGHUP makes it read
// the file at once. Without a file the signal does not end the server, unless the server runs in
// a terminal: then the signal means that the terminal was closed.
func (r *reload) run(ctx context.Context) error {
	if r.now.File == "" && terminal.Is(os.Stdin) {
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for r.now.File == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			r.logger.Warn("nothing to reload: serve has no --config")
		}
	}
	config.Follow(ctx, r.now.File, r.now.Content, ReloadPeriod, hangups, r.changed, r.reject)
	return nil
}

// changed applies a new content of the file. It returns an error if that has changed nothing.
func (r *reload) changed(content []byte) error {
	next := settings.New()
	next.File = r.now.File
	err := next.Keys.CopyFlags(r.started.Keys)
	if err == nil {
		err = next.Use(content)
	}
	if err == nil {
		err = next.State.Find() // as at the start
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
	r.logger.Error("configuration not reloaded: the settings stay as they are", "file", r.now.File, "errors",
		strings.Join(texts, "; "))
	r.replica.problems.reject(r.now.File, texts)
	is := *r.announced.Configuration
	is.Errors = texts
	r.announced.Configuration = &is
	r.update()
}

// apply makes settings effective. If it returns an error, it has changed nothing.
func (r *reload) apply(next *settings.Settings) error {
	live, restart := r.differences(next)
	var opened *settings.OpenedSources
	if slices.ContainsFunc(live, func(path string) bool { return strings.HasPrefix(path, "sources.") }) {
		var err error
		if opened, err = next.Sources.Open(r.logger); err != nil {
			return next.Keys.Locate(err)
		}
	}
	err := r.replica.fleet.Reconfigure(r.tuning(next))
	if err == nil {
		err = r.replica.control.Cross(next.Access.Crossing())
	}
	if err != nil { // impossible: the patterns have been checked
		return err
	}
	r.front.Limit(next.Listening.Limits())
	if r.replica.audit != nil {
		r.replica.audit.Rotate(next.Audit.MaxSize<<20, next.Audit.MaxBackups)
	}
	if opened != nil {
		r.clusters.Use(opened.Parts)
		if err := r.describe(opened); err != nil {
			r.logger.Error("cannot announce the sources of clusters", "err", err)
		}
	}
	r.clusters.Label(next.Labels())
	r.replica.problems.accept()
	r.now = next
	attributes := []any{"file", next.File}
	if len(live) > 0 {
		attributes = append(attributes, "changed", strings.Join(live, ", "))
	}
	r.logger.Info("configuration reloaded", attributes...)
	if len(restart) > 0 {
		r.logger.Warn("some changes of the configuration have no effect yet: restart to apply them", "file", next.File,
			"keys", strings.Join(restart, ", "))
	}
	r.announced.Configuration = &state.Configuration{File: next.File, Loaded: time.Now(), Restart: restart}
	r.update()
	return nil
}

// differences returns the keys that have changed since the last file and take effect now, and
// those whose values differ from the ones in effect until a restart.
func (r *reload) differences(next *settings.Settings) (live, restart []string) {
	for _, k := range next.Keys.Changes(r.now.Keys) {
		if k.Live {
			live = append(live, k.Path)
		}
	}
	for _, k := range next.Keys.Changes(r.started.Keys) {
		if !k.Live {
			restart = append(restart, k.Path)
		}
	}
	if !reflect.DeepEqual(next.Keys.Clusters, r.now.Keys.Clusters) {
		live = append(live, "clusters")
	}
	return live, restart
}

// tuning returns the options of the fleet that can change while it runs.
func (r *reload) tuning(next *settings.Settings) fleet.Tuning {
	opts := next.FleetOptions(nil)
	return fleet.Tuning{Resources: r.started.Access.Mirrored(next.Resources), Except: opts.Except,
		Expendable: opts.Expendable, Limits: opts.Limits, History: opts.History}
}

// announce writes what other commands can read about the server, at the start.
func (r *reload) announce(opened *settings.OpenedSources) (withdraw func(), err error) {
	if r.started.File != "" {
		r.announced.Configuration = &state.Configuration{File: r.started.File, Loaded: time.Now()}
	}
	if err := r.describe(opened); err != nil {
		return nil, err
	}
	return r.started.State.Announce(r.announced)
}

// describe records the sources of clusters.
func (r *reload) describe(opened *settings.OpenedSources) error {
	paths, err := opened.Paths()
	if err != nil {
		return err
	}
	r.announced.Kubeconfig, r.announced.Contexts = paths, opened.Contexts
	return nil
}

// update writes what other commands can read about the server again.
func (r *reload) update() {
	if _, err := r.started.State.Announce(r.announced); err != nil {
		r.logger.Error("cannot announce the state of the configuration", "err", err)
	}
}

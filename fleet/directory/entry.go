// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
)

// newEntry returns the entry of a cluster with configuration cfg or, if err is not nil,
// with that error. It also checks the configuration. If the check were left to the
// first request, a cluster that is connected would lose its working configuration to
// a broken one.
func newEntry(name string, cfg *rest.Config, err error) fleet.Entry {
	if err == nil {
		err = checkConfig(cfg)
	}
	var access string
	if err == nil {
		access, err = fleet.Access(cfg)
	}
	if err != nil {
		return fleet.Entry{Name: name, Err: err}
	}
	return fleet.Entry{Name: name, Config: cfg, Access: access}
}

// checkConfig returns an error if the address of the server or a certificate cannot be
// parsed.
func checkConfig(cfg *rest.Config) error {
	if _, _, err := rest.DefaultServerUrlFor(cfg); err != nil {
		return errors.New("server address is not a valid URL") // the cause may quote a password
	}
	// The credentials are left out, so that no credential plugin runs.
	if _, err := rest.TLSConfigFor(&rest.Config{Host: cfg.Host, TLSClientConfig: cfg.TLSClientConfig}); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
}

// sameEntry reports whether two entries are equal. It compares Access and not Config.
func sameEntry(a, b fleet.Entry) bool {
	if (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
		return false
	}
	if (a.Scope == nil) != (b.Scope == nil) || a.Scope != nil && *a.Scope != *b.Scope {
		return false
	}
	return a.Name == b.Name && a.Access == b.Access && slices.Equal(a.Shadowed, b.Shadowed) &&
		maps.Equal(a.Labels, b.Labels)
}

// copyEntries returns entries that share nothing with the given ones.
func copyEntries(entries []fleet.Entry) []fleet.Entry {
	own := make([]fleet.Entry, len(entries))
	for i, e := range entries {
		e.Config, e.Labels = copyConfig(e.Config), maps.Clone(e.Labels)
		if e.Scope != nil {
			e.Scope = new(*e.Scope)
		}
		e.Shadowed = slices.Clone(e.Shadowed)
		own[i] = e
	}
	return own
}

// copyConfig returns a copy that shares nothing with cfg that a caller could change.
// [rest.CopyConfig] alone shares the credential plugin, and writes to it.
func copyConfig(cfg *rest.Config) *rest.Config {
	if cfg == nil {
		return nil
	}
	own := *cfg
	own.ExecProvider = cfg.ExecProvider.DeepCopy()
	own.AuthProvider = cfg.AuthProvider.DeepCopy()
	return rest.CopyConfig(&own)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"context"
	"fmt"
	"net"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
)

// Peers are the flags about the port for the other replicas of a group.
type Peers struct{ Listen, address string }

func (o *Peers) declare(in config.Section) {
	in.String(&o.Listen, "group.listen", "group-listen", "", "an `address` at which the other replicas of the group "+
		"reach this one, so that users read through one what they have written through another; needs a port of its "+
		"own (default none)")
	in.String(&o.address, "group.address", "group-address", "", "the `address` of --group-listen as the other "+
		"replicas reach it, such as 10.0.0.7:7444; needed if --group-listen has no host (default the one of "+
		"--group-listen)")
}

// validate refuses settings that would have no effect, or that no other replica could use.
func (o *Peers) validate(group string) error {
	switch {
	case o.Listen == "" && o.address != "":
		return config.About("group-address", "--group-address has no effect without --group-listen")
	case o.Listen == "":
		return nil
	case group == "":
		return config.About("group-listen", "--group-listen has no effect without --replica-group")
	}
	text, flag := o.Listen, "group-listen"
	if o.address != "" {
		text, flag = o.address, "group-address"
	}
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		return config.About(flag, "--%s %s: %v", flag, text, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return config.About(flag, "--%s %s: name the host at which the other replicas reach this one, with "+
			"--group-address HOST:PORT", flag, text)
	}
	return nil
}

// ListenPeers listens for other replicas, and returns the address for them. The listener is nil if
// this replica has no port for other replicas.
func (o *Settings) ListenPeers(ctx context.Context) (l net.Listener, address string, err error) {
	if o.Peers.Listen == "" {
		return nil, "", nil
	}
	var config net.ListenConfig
	if l, err = config.Listen(ctx, "tcp", o.Peers.Listen); err != nil {
		return nil, "", fmt.Errorf("--group-listen: %w", err)
	}
	if o.Peers.address != "" {
		return l, o.Peers.address, nil
	}
	return l, l.Addr().String(), nil
}

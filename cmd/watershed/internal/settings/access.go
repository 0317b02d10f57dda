// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/fleet"
)

// Access are the flags for access control.
type Access struct {
	Home                   string
	users, groups, members []string
	LocalRBAC              []string
	oidc                   authn.OIDCOptions
}

func (o *Access) declare(in config.Section) {
	in.String(&o.Home, "fleet.home", "home", "", "the `cluster` that authenticates requests below /fleet; callers "+
		"keep their identity there (default none)")
	in.Strings(&o.users, "fleet.users", "fleet-users", nil, "`patterns` of home-cluster users that other "+
		"clusters accept under the same name, such as 'oidc:*'; names that begin with system: are never "+
		"accepted").Reloads()
	in.Strings(&o.groups, "fleet.groups", "fleet-groups", nil,
		"`patterns` of home-cluster groups that other clusters accept under the same name").Reloads()
	in.Strings(&o.members, "fleet.members", "fleet-members", nil, "`patterns` of the clusters that accept "+
		"identities of the home cluster or of OpenID Connect below /fleet (default all)").Reloads()
	in.Strings(&o.LocalRBAC, "authorization.localRBAC", "local-rbac", nil,
		"`patterns` of clusters whose RBAC is evaluated here instead of asking them for each decision; only for "+
			"clusters without other authorizers that deny")
	in.String(&o.oidc.Issuer, "oidc.issuerURL", "oidc-issuer-url", "",
		"the `URL` of the OpenID Connect issuer whose tokens are accepted below /fleet")
	in.String(&o.oidc.Audience, "oidc.clientID", "oidc-client-id", "",
		"the client `ID` that the tokens must be issued for")
	in.String(&o.oidc.UsernameClaim, "oidc.usernameClaim", "oidc-username-claim", "sub",
		"the `claim` with the name of the user")
	in.String(&o.oidc.UsernamePrefix, "oidc.usernamePrefix", "oidc-username-prefix", "",
		"the `prefix` of the names of users; needed, so that they differ from those of clusters")
	in.String(&o.oidc.GroupsClaim, "oidc.groupsClaim", "oidc-groups-claim", "",
		"the `claim` with the groups (default none)")
	in.String(&o.oidc.GroupsPrefix, "oidc.groupsPrefix", "oidc-groups-prefix", "",
		"the `prefix` of the names of groups")
	in.Strings(&o.oidc.SupportedAlgs, "oidc.signingAlgs", "oidc-signing-algs", []string{"RS256"},
		"the `algorithms` that tokens may be signed with")
	in.String(&o.oidc.CAFile, "oidc.caFile", "oidc-ca-file", "",
		"a `file` with the certificates that the issuer is verified with (default those of the system)")
}

// validate refuses settings that would have no effect.
func (o *Access) validate() error {
	if o.Home == "" && (len(o.users) > 0 || len(o.groups) > 0) {
		return config.About("fleet-users", "--fleet-users and --fleet-groups have no effect without --home, which "+
			"names the cluster of these users")
	}
	if o.oidc.Issuer == "" && (o.oidc.Audience != "" || o.oidc.UsernamePrefix != "" || o.oidc.GroupsClaim != "" ||
		o.oidc.GroupsPrefix != "" || o.oidc.CAFile != "") {
		return errors.New("the flags that begin with --oidc have no effect without --oidc-issuer-url")
	}
	if o.Home == "" && o.oidc.Issuer == "" && len(o.members) > 0 {
		return config.About("fleet-members", "--fleet-members has no effect without --home or --oidc-issuer-url")
	}
	crossing := o.Crossing()
	if err := crossing.Validate(); err != nil {
		return config.About("fleet-users", "%v", err)
	}
	return nil
}

// HasIssuer reports whether OpenID Connect authenticates requests below /fleet.
func (o *Access) HasIssuer() bool { return o.oidc.Issuer != "" }

// Crossing returns which identities may read below /fleet, without OpenID Connect.
func (o *Access) Crossing() access.Crossing {
	x := access.Crossing{Home: o.Home, Users: o.users, Groups: o.groups}
	if len(o.members) > 0 {
		x.Members = o.members // nil means all
	}
	return x
}

// local reports whether RBAC of a cluster is evaluated here, nil if that of none is.
func (o *Access) local() func(string) bool {
	if len(o.LocalRBAC) == 0 {
		return nil
	}
	return func(cluster string) bool { return access.Matches(o.LocalRBAC, cluster) }
}

// Mirrored returns the resources to mirror: those of the flags, and those that access
// control reads.
func (o *Access) Mirrored(resources []string) []string {
	if len(o.LocalRBAC) == 0 {
		return resources
	}
	return slices.Concat(resources, access.PolicyResources())
}

// Open returns the access control of a fleet, with the flags and with further options.
func (o *Access) Open(ctx context.Context, f *fleet.Fleet, opts access.Options) (*access.Control, error) {
	opts.Local, opts.Crossing = o.local(), o.Crossing()
	if o.oidc.Issuer != "" {
		o.oidc.Logger = opts.Logger
		issuer, err := authn.NewOIDC(ctx, o.oidc)
		if err != nil {
			return nil, fmt.Errorf("--oidc-issuer-url: %w", err)
		}
		opts.Crossing.OIDC = issuer
	}
	return access.New(f, opts)
}

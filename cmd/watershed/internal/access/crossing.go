// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/authn"
	"github.com/watershed-project/watershed/fleet"
)

// Crossing says which identities may read below /fleet, and under which names the members
// know them. One name is not one person in all clusters, so nothing crosses that the
// operator has not allowed.
type Crossing struct {
	// Home is the name of the cluster that authenticates callers with tokens. In that
	// cluster they keep their identity. "" means that there is none.
	Home string
	// OIDC authenticates callers by OpenID Connect, nil if there is none. Its names and
	// groups have prefixes, and cross to all members.
	OIDC *authn.OIDC
	// Users and Groups are the names of Home that cross to other members, each with at most
	// one star, which stands for any text, such as "oidc:*" or "*@example.com". Names that
	// begin with "system:" or "watershed:" never cross. A service account crosses as
	// "watershed:HOME:NAMESPACE:NAME", without groups, whether it is listed or not.
	Users, Groups []string
	// Members are the names of the members that accept identities of another cluster or of
	// OpenID Connect, with stars as in Users. Nil means all members.
	Members []string
}

// Validate refuses patterns that match every name.
func (x *Crossing) Validate() error {
	for _, pattern := range slices.Concat(x.Users, x.Groups) {
		switch {
		case strings.Trim(pattern, "*") == "":
			return fmt.Errorf("access: the pattern %q of names that cross clusters matches every name: add a prefix "+
				"or a suffix", pattern)
		case strings.Count(pattern, "*") > 1:
			return fmt.Errorf("access: the pattern %q of names that cross clusters has more than one star", pattern)
		case strings.HasPrefix(pattern, systemPrefix), strings.HasPrefix(pattern, crossedPrefix):
			return fmt.Errorf("access: the pattern %q would match names that never cross clusters", pattern)
		}
	}
	return nil
}

const (
	// systemPrefix is the prefix of the names that Kubernetes itself uses. They exist in
	// every cluster and mean something else in each.
	systemPrefix = "system:"
	// crossedPrefix is the prefix of the names by which other members know service accounts. No
	// other caller may have such a name there.
	crossedPrefix = "watershed:"
	// accountPrefix is the prefix of the names of service accounts.
	accountPrefix = "system:serviceaccount:"
	// authenticated is the group of all identities.
	authenticated = "system:authenticated"
)

// cross returns the identity that a member knows a caller by, nil if the caller has none
// there.
func (x *Crossing) cross(who *caller, m *fleet.Member) *caller {
	if who.owner || who.at == m {
		return who
	}
	if x.Members != nil && !Matches(x.Members, m.Name()) {
		return nil
	}
	user := authenticationv1.UserInfo{}
	switch account, isAccount := strings.CutPrefix(who.Username, accountPrefix); {
	case isAccount && who.at != nil:
		user.Username = crossedPrefix + who.at.Name() + ":" + account
	case strings.HasPrefix(who.Username, systemPrefix), strings.HasPrefix(who.Username, crossedPrefix),
		who.Username == "":
		return nil
	case who.at == nil: // OpenID Connect
		user.Username, user.Groups = who.Username, slices.Clone(who.Groups)
	case !Matches(x.Users, who.Username):
		return nil
	default:
		user.Username = who.Username
		for _, group := range who.Groups {
			if Matches(x.Groups, group) {
				user.Groups = append(user.Groups, group)
			}
		}
	}
	user.Groups = slices.DeleteFunc(user.Groups, func(group string) bool {
		return strings.HasPrefix(group, systemPrefix)
	})
	user.Groups = append(user.Groups, authenticated)
	return &caller{Identity: authn.Identity{UserInfo: user, Expires: who.Expires, Method: who.Method}}
}

// Matches reports whether a name matches one of the patterns, each with at most one star.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		before, after, star := strings.Cut(pattern, "*")
		if !star {
			return name == pattern
		}
		return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
	})
}

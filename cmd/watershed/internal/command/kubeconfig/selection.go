// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/fleet/directory"
)

// candidate is a context of the user, and the cluster of the server that it is for.
type candidate struct {
	directory.Context
	cluster string
}

// selection selects the contexts of a new kubeconfig.
type selection struct {
	target *apiclient.Target
	mine   *apiclient.UserKubeconfig
	// trouble receives a line for each context that is left out.
	trouble io.Writer
}

// forOwner returns contexts for all clusters, with the owner's credential. The context of a
// cluster that is a context of the user has its name and namespace.
func (s *selection) forOwner(clusters []string) []replicaContext {
	mirrored := map[string]directory.Context{}
	for _, c := range s.mine.Contexts {
		mirrored[c.Cluster] = c
	}
	owner := apiclient.OwnerCredential(s.target.Owner)
	var found []replicaContext
	for _, cluster := range clusters {
		context := mirrored[cluster]
		found = append(found, replicaContext{
			name: cmp.Or(context.Name, cluster), cluster: cluster, namespace: context.Namespace, credential: owner,
		})
	}
	return append(found, newFleetContext(owner))
}

// listed returns the candidates whose clusters the server has listed, and the fleet. Home is
// the user's context for the home cluster, "" if there is none.
func (s *selection) listed(clusters []string, candidates []candidate, home string) []replicaContext {
	var found []replicaContext
	for _, cluster := range clusters {
		known := false
		for _, c := range candidates {
			if c.cluster != cluster {
				continue
			}
			known = true
			if r, ok := s.own(c); ok {
				found = append(found, r)
			}
		}
		if !known {
			s.report("cluster", cluster, fmt.Errorf("no context for it in %s; --map CONTEXT=%s names one",
				s.mine.Source, cluster))
		}
	}
	return s.appendFleet(found, home, func(replicaContext) error { return nil })
}

// checked returns the candidates that the server accepts, and the fleet. If offline is true
// it does not ask the server.
func (s *selection) checked(
	ctx context.Context, candidates []candidate, home string, offline bool,
) ([]replicaContext, error) {
	check := func(r replicaContext) error { return s.check(ctx, r) }
	if offline {
		check = func(replicaContext) error { return nil }
	} else if err := s.target.Reach(ctx); err != nil {
		return nil, err
	}
	var found []replicaContext
	for _, c := range candidates {
		r, ok := s.own(c)
		if !ok {
			continue
		}
		// One at a time: credential plugins may talk to the user.
		if err := check(r); err != nil {
			s.report("context", c.Name, err)
			continue
		}
		found = append(found, r)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.appendFleet(found, home, check), nil
}

// own returns the context of a candidate with the user's own credentials. It reports a
// candidate without credentials.
func (s *selection) own(c candidate) (replicaContext, bool) {
	credential, err := s.mine.Credential(c.Name)
	if err != nil {
		s.report("context", c.Name, err)
		return replicaContext{}, false
	}
	return replicaContext{
		name: c.Name, cluster: c.cluster, namespace: c.Namespace, credential: credential,
	}, true
}

// appendFleet adds the context of the fleet, with the credentials of the home cluster, else
// with those of the owner.
func (s *selection) appendFleet(
	found []replicaContext, home string, check func(replicaContext) error,
) []replicaContext {
	fleet, err := s.homeFleet(home)
	if err == nil {
		err = check(fleet)
	}
	switch {
	case err == nil:
		return append(found, fleet)
	case s.target.Owner != "":
		return append(found, newFleetContext(apiclient.OwnerCredential(s.target.Owner)))
	}
	s.report("context", fleetContext, err)
	return found
}

// homeFleet returns the context of the fleet with the credentials of the home cluster.
func (s *selection) homeFleet(home string) (replicaContext, error) {
	if home == "" {
		return replicaContext{}, errors.New("the context of the home cluster is not known; --context names it")
	}
	credential, err := s.mine.Credential(home)
	if err != nil {
		return replicaContext{}, fmt.Errorf("context %q: %w", home, err)
	}
	if credential.IsCertificate() {
		return replicaContext{}, fmt.Errorf("context %q has a client certificate, which is not accepted for the "+
			"whole fleet", home)
	}
	fleet := newFleetContext(credential)
	fleet.written = s.target.Owns(s.mine.Cluster(home))
	return fleet, nil
}

// check returns an error if the server refuses a context, or its credentials cannot be
// obtained.
func (s *selection) check(ctx context.Context, r replicaContext) error {
	if p := r.credential.User.AuthProvider; p != nil {
		fmt.Fprintf(s.trouble, "watershed: context %q is not checked: "+
			"this program does not have the auth provider %q\n", r.name, p.Name)
		return nil
	}
	cfg, err := s.target.ClientConfig(r.entry(""), r.path(), r.credential)
	if err != nil {
		return err
	}
	status, err := s.target.Status(ctx, cfg, r.path())
	switch {
	case err != nil:
		return err
	case slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound}, status) && r.cluster == "":
		return fmt.Errorf("the server does not accept its credentials for the whole fleet (%d)", status)
	case status == http.StatusUnauthorized || status == http.StatusNotFound:
		return fmt.Errorf("the server does not have a cluster %q, or the cluster does not accept the credentials (%d)",
			r.cluster, status)
	}
	return nil
}

// report writes a line about a context or cluster that is left out.
func (s *selection) report(kind, name string, reason error) {
	fmt.Fprintf(s.trouble, "watershed: %s %q is left out: %v\n", kind, name, reason)
}

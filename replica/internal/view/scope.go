// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/warning"
)

// Limits collects what a response lacks because the copies of some clusters are limited to
// a scope. A part of a cluster must not look like the whole.
type Limits struct {
	// without are the clusters that are left out.
	without []*fleet.Member
	// partly are the clusters of which the copy has only a part.
	partly []*fleet.Member
}

// LeaveOut reports whether the copy of a cluster cannot have anything in the namespace of a
// request, and takes note of it. Namespace "" means all.
func (l *Limits) LeaveOut(m *fleet.Member, r schema.GroupVersionResource, namespace string) bool {
	scope := m.Scope()
	switch {
	case scope.Whole():
		return false
	case m.Excludes(r), scope.Namespace != "" && namespace != "" && namespace != scope.Namespace:
		l.without = append(l.without, m)
		return true
	case scope.LabelSelector != "" || namespace == "":
		l.partly = append(l.partly, m)
	}
	return false
}

// Refuse returns the 403 for a request that no copy can answer because of its scope, nil
// if there is no such scope.
func (l *Limits) Refuse(r schema.GroupResource, name string) error {
	if len(l.without) == 0 {
		return nil
	}
	m := l.without[0]
	return apierrors.NewForbidden(r, name,
		fmt.Errorf("the copy of cluster %s is limited to %s; read the rest from the cluster itself", m.Name(),
			m.Scope()))
}

// RefusePart returns the 403 for a request to one cluster that goes beyond the namespace
// of the copy: its API server would return it too for credentials that are bound to that
// namespace.
func (l *Limits) RefusePart(r schema.GroupResource, namespace, name string) error {
	if err := l.Refuse(r, name); err != nil {
		return err
	}
	for _, m := range l.partly {
		if only := m.Scope().Namespace; only != "" && namespace == "" {
			return apierrors.NewForbidden(r, name,
				errors.New("the copy of cluster "+m.Name()+" is limited to "+m.Scope().String()+"; add -n "+only+
					", or read from the cluster itself"))
		}
	}
	return nil
}

// Warnings returns what the response lacks.
func (l *Limits) Warnings() []string {
	var all []string
	for i, m := range l.partly {
		if i == warning.Limit {
			all = append(all, fmt.Sprintf("%d more clusters are not mirrored as a whole", len(l.partly)-i))
			break
		}
		all = append(all, fmt.Sprintf("cluster %s is mirrored only in part: %s", m.Name(), m.Scope()))
	}
	var names []string
	for i, m := range l.without {
		if i == warning.Limit {
			names = append(names, fmt.Sprintf("and %d more", len(l.without)-i))
			break
		}
		names = append(names, m.Name())
	}
	if len(names) > 0 {
		all = append(all, "not in the scope of the copy, and left out: cluster "+strings.Join(names, ", "))
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet"
)

// limits collects what an answer lacks because the copies of some clusters are limited to
// a scope. A part of a cluster must not look like the whole.
type limits struct {
	// without are clusters that are left out, partly those of which only a part is
	// there.
	without, partly []*fleet.Member
}

// leaveOut reports whether the copy of a cluster can have nothing of what a request
// addresses, and takes note of it.
func (l *limits) leaveOut(m *fleet.Member, t target) bool {
	scope := m.Scope()
	switch {
	case scope.Whole():
		return false
	case m.Excludes(t.GroupVersionResource), scope.Namespace != "" && t.namespace != "" && t.namespace != scope.Namespace:
		l.without = append(l.without, m)
		return true
	case scope.LabelSelector != "" || t.namespace == "":
		l.partly = append(l.partly, m)
	}
	return false
}

// refuse returns the 403 for a request that no copy can answer because of its scope, nil
// if there is no such scope.
func (l *limits) refuse(t target) error {
	if len(l.without) == 0 {
		return nil
	}
	m := l.without[0]
	return apierrors.NewForbidden(t.GroupResource(), t.name,
		fmt.Errorf("the copy of cluster %s is limited to %s; read the rest from the cluster itself", m.Name(), m.Scope()))
}

// refusePart returns the 403 for a request to one cluster that goes beyond the namespace
// of the copy: its API server would return it too for credentials that are bound to that
// namespace.
func (l *limits) refusePart(t target) error {
	if err := l.refuse(t); err != nil {
		return err
	}
	for _, m := range l.partly {
		if namespace := m.Scope().Namespace; namespace != "" && t.namespace == "" {
			return apierrors.NewForbidden(t.GroupResource(), t.name,
				errors.New("the copy of cluster "+m.Name()+" is limited to "+m.Scope().String()+"; add -n "+namespace+", or read from the cluster itself"))
		}
	}
	return nil
}

// warn adds what is lacking to the headers of an answer.
func (l *limits) warn(h http.Header) {
	for i, m := range l.partly {
		if i == mostWarnings {
			h.Add("Warning", warning(fmt.Sprintf("%d more clusters are not mirrored as a whole", len(l.partly)-i)))
			break
		}
		h.Add("Warning", warning(fmt.Sprintf("cluster %s is mirrored only in part: %s", m.Name(), m.Scope())))
	}
	var names []string
	for i, m := range l.without {
		if i == mostWarnings {
			names = append(names, fmt.Sprintf("and %d more", len(l.without)-i))
			break
		}
		names = append(names, m.Name())
	}
	if len(names) > 0 {
		h.Add("Warning", warning("not in the scope of the copy, and left out: cluster "+strings.Join(names, ", ")))
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
)

// errUnauthorized is the response to every request whose credentials are not accepted, also
// if the cluster does not exist.
func errUnauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

// unavailable returns the 503 for a cluster that cannot decide.
func unavailable(m *fleet.Member) error {
	return apierrors.NewServiceUnavailable(
		fmt.Sprintf("cluster %s, which decides about the request, cannot be reached", m.Name()),
	)
}

// unconfirmed returns the 503 for a cluster that has not identified itself since the start. While
// it is being tried for the first time, the client is asked to try again.
func unconfirmed(m *fleet.Member) error {
	err := apierrors.NewServiceUnavailable(
		fmt.Sprintf("cluster %s, which decides about the request, has not been identified since this server started",
			m.Name()),
	)
	if m.Status().Err == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return err
}

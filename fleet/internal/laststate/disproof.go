// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package laststate

import (
	"errors"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/internal/storage"
)

// Disproves reports whether an error means that the last state must not be read any more: the
// server's certificate is not valid for the cluster, the server has no discovery, or IsFinal is
// true. A timeout or a refused connection disproves nothing.
func Disproves(err error) bool {
	switch health.TroubleOf(err) {
	case health.UnknownAuthority, health.WrongHost, health.CertificateExpired, health.NotServed:
		return true
	}
	return IsFinal(err)
}

// IsFinal reports whether an error shows that the last state must not be used after the next
// restart either.
func IsFinal(err error) bool {
	switch health.TroubleOf(err) {
	case health.Unauthorized, health.Forbidden, health.AnotherCluster:
		return true
	}
	return errors.Is(err, storage.ErrUnidentified)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"crypto/tls"
	"fmt"

	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// serverName is the name in the certificate that all clusters share.
const serverName = "kubernetes"

// newAuthority returns an authority that exists only in this process, and a certificate
// from it.
func newAuthority() (ca []byte, serving tls.Certificate, err error) {
	a, err := authority.New("simulated")
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("authority: %w", err)
	}
	der, key, err := a.Serving([]string{serverName})
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("authority: %w", err)
	}
	return a.PEM(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

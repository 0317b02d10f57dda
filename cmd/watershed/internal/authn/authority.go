// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// authorityPath is the ConfigMap in which kube-apiserver publishes the certificate
// authorities that it accepts.
const authorityPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// authority reads the certificate authorities for clients of one cluster. kube-apiserver adds
// its authorities to the ConfigMap and does not remove one before it expires, even if it does
// not accept it any more. An administrator who withdraws an authority must delete the
// ConfigMap, which kube-apiserver then writes with the current ones only.
type authority struct {
	cluster http.RoundTripper
	journal *journal
}

// fetch reads the bundle. It logs errors and returns a status. An unchanged bundle is
// returned itself, because it remembers what it has verified.
func (a authority) fetch(ctx context.Context, previous *bundle) (*bundle, error) {
	code, body, err := get(ctx, a.cluster, authorityPath)
	pem := ""
	if err == nil {
		switch code {
		case http.StatusOK:
			pem, err = parseAuthority(body)
		case http.StatusNotFound:
			// The cluster does not publish any, or an administrator has deleted the
			// ConfigMap so that kube-apiserver writes it again.
			if previous != nil && previous.pem != "" {
				err = errors.New("the ConfigMap is gone")
			}
		case http.StatusForbidden:
			a.journal.report("cannot check client certificates: the right get "+
				"configmaps/extension-apiserver-authentication in kube-system is missing", "status 403")
			return nil, unavailable(authorityForbidden)
		default:
			err = fmt.Errorf("status %d", code)
		}
	}
	if err == nil && previous != nil && previous.pem == pem {
		return previous, nil
	}
	var b *bundle
	if err == nil {
		b, err = newBundle(pem)
	}
	if err != nil {
		a.journal.report("cannot read the certificate authority for clients", err.Error())
		return nil, unavailable(authorityUnavailable)
	}
	return b, nil
}

// parseAuthority returns the bundle in a ConfigMap, "" if it has none: such a cluster does
// not accept certificates.
func parseAuthority(configMap []byte) (string, error) {
	var c struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(configMap, &c); err != nil {
		return "", errors.New("the response is not JSON")
	}
	if c.Kind != "ConfigMap" {
		return "", errors.New("the response is not a ConfigMap")
	}
	return c.Data["client-ca-file"], nil
}

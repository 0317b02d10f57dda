// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
)

// request is a list or a watch by a client.
type request struct{ listwatch.Request }

func newRequest(verb string, p *prototype) request {
	return request{listwatch.Request{Doing: verb + " " + p.String(), Collection: true}}
}

// failed converts an error of a client to one for a reflector.
func (r request) failed(ctx context.Context, err error) error {
	if ended := r.Ended(ctx); ended != nil {
		return ended
	}
	var status *apierrors.StatusError
	var network *url.Error
	out := &reflector.Error{}
	switch {
	case errors.As(err, &status):
		out = r.Refused(status, 0, false)
	case utilnet.IsConnectionRefused(err):
		out.Reason = reflector.Refused
	case r.InitialEvents && !errors.As(err, &network):
		// The error does not come from a server. The client is a fake that does not
		// support the request, and will not support it the next time.
		out.Reason = reflector.NotSupported
	}
	out.Err = r.broken(err)
	return out
}

// broken returns an error of a response that had begun. It does not imply anything about
// what the server supports.
func (r request) broken(err error) error { return fmt.Errorf("%s: %w", r.Doing, err) }

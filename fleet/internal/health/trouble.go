// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io"
	stdnet "net"
	"os"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// Trouble classifies the cause of an error of a cluster. The values do not change between
// releases, so that programs can act on them.
type Trouble string

const (
	// Unreachable means that no connection to the API server could be made, or that it broke.
	Unreachable Trouble = "Unreachable"
	// Silent means that the API server keeps a connection open and sends nothing.
	Silent Trouble = "Silent"
	// TimedOut means that the API server accepted the connection and did not answer in time.
	TimedOut Trouble = "TimedOut"
	// CertificateExpired means that a certificate is past its end, or has not begun.
	CertificateExpired Trouble = "CertificateExpired"
	// UnknownAuthority means that the configured authority did not sign the certificate of
	// the API server.
	UnknownAuthority Trouble = "UnknownAuthority"
	// WrongHost means that the certificate of the API server is for other names.
	WrongHost Trouble = "WrongHost"
	// NoCredentials means that the directory has no usable credentials for the cluster.
	NoCredentials Trouble = "NoCredentials"
	// Unauthorized means that the API server does not accept the credentials.
	Unauthorized Trouble = "Unauthorized"
	// Forbidden means that the credentials lack a right.
	Forbidden Trouble = "Forbidden"
	// NotServed means that the cluster does not serve the resource.
	NotServed Trouble = "NotServed"
	// Busy means that the API server asks clients to retry later.
	Busy Trouble = "Busy"
	// ServerError means that the API server answers with another error.
	ServerError Trouble = "ServerError"
	// DiscoveryFailed means that a part of discovery is missing, because a server behind an
	// aggregated API does not respond.
	DiscoveryFailed Trouble = "DiscoveryFailed"
	// LimitExceeded means that the cluster exceeds a limit of the fleet.
	LimitExceeded Trouble = "LimitExceeded"
	// OutOfMemory means that the process has no memory for the resource.
	OutOfMemory Trouble = "OutOfMemory"
	// AnotherCluster means that the address leads to another cluster than before.
	AnotherCluster Trouble = "AnotherCluster"
	// Failed is any other cause.
	Failed Trouble = "Failed"
)

// ErrUnlisted is in the tree of each error of the directory.
var ErrUnlisted = errors.New("directory")

// TroubleOf returns the cause of an error, "" if err is nil.
func TroubleOf(err error) Trouble {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnlisted):
		return NoCredentials
	case errors.Is(err, upstream.ErrAnotherCluster):
		return AnotherCluster
	case errors.Is(err, quota.ErrMemory):
		return OutOfMemory
	case errors.Is(err, quota.ErrLimit):
		return LimitExceeded
	case reflector.IsSilence(err):
		return Silent
	}
	return cmp.Or(certificateTrouble(err), responseTrouble(err), networkTrouble(err))
}

// certificateTrouble returns the cause if it is a certificate, else "".
func certificateTrouble(err error) Trouble {
	var (
		invalid x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return CertificateExpired
	case errors.As(err, &unknown):
		return UnknownAuthority
	case errors.As(err, &host):
		return WrongHost
	}
	return ""
}

// responseTrouble returns the cause if it is a response of the API server, else "".
func responseTrouble(err error) Trouble {
	var (
		group  *kube.GroupError
		status apierrors.APIStatus
	)
	switch reason := reflector.ReasonOf(err); {
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsForbidden(err):
		return Forbidden
	case reason == reflector.Busy, apierrors.IsTooManyRequests(err):
		return Busy
	case errors.As(err, &group):
		return DiscoveryFailed
	case reason == reflector.NotServed, apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return NotServed
	case reason == reflector.Refused:
		return Unreachable
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return TimedOut
	case errors.As(err, &status):
		return ServerError
	}
	return ""
}

// networkTrouble returns the cause of an error that is not a response.
func networkTrouble(err error) Trouble {
	var (
		network stdnet.Error
		dial    *stdnet.OpError
		lookup  *stdnet.DNSError
	)
	switch {
	case errors.As(err, &lookup), errors.As(err, &dial) && dial.Op == "dial":
		return Unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return TimedOut
	case errors.As(err, &dial), isBroken(err):
		return Unreachable
	}
	return Failed
}

// isBroken reports whether an error is that of a connection that was closed or reset.
func isBroken(err error) bool {
	for _, one := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// Cause is the class of an error that keeps a copy from being current. There are few, so
// that they can be labels of metrics.
type Cause string

// The causes, with the errors that they stand for.
const (
	// CauseNone is that of no error.
	CauseNone Cause = ""
	// CauseUnreachable means that no connection could be made, or that it broke.
	CauseUnreachable Cause = "unreachable"
	// CauseSilent means that the server sent nothing for too long.
	CauseSilent Cause = "silent"
	// CauseCertificate means that the server's certificate was not accepted.
	CauseCertificate Cause = "certificate"
	// CauseUnauthorized means that the server did not accept the credentials.
	CauseUnauthorized Cause = "unauthorized"
	// CauseForbidden means that the credentials do not have the right to read a resource.
	CauseForbidden Cause = "forbidden"
	// CauseNotServed means that the server does not have the resource.
	CauseNotServed Cause = "not_served"
	// CauseBusy means that the server asked to retry later.
	CauseBusy Cause = "busy"
	// CauseServer is any other error that the server returned.
	CauseServer Cause = "server_error"
	// CauseDiscovery means that a part of discovery is missing, because a server behind an
	// aggregated API does not respond.
	CauseDiscovery Cause = "discovery"
	// CauseLimit means that the cluster exceeds its [Limits].
	CauseLimit Cause = "limit"
	// CauseAnotherCluster means that another cluster now has the address.
	CauseAnotherCluster Cause = "another_cluster"
	// CauseDirectory means that the directory has no usable configuration.
	CauseDirectory Cause = "directory"
	// CauseOther is any other error.
	CauseOther Cause = "other"
)

// CauseOf returns the cause of an error of a [Status] or a [ResourceStatus].
func CauseOf(err error) Cause {
	for _, c := range causes {
		if c.is(err) {
			return c.cause
		}
	}
	if err == nil {
		return CauseNone
	}
	return CauseOther
}

// causes has the causes and how their errors are recognized. The first that matches is
// used: an error of a limit can wrap any other.
var causes = []struct {
	cause Cause
	is    func(error) bool
}{
	{CauseNone, func(err error) bool { return err == nil }},
	{CauseLimit, func(err error) bool { return errors.Is(err, ErrLimit) }},
	{CauseAnotherCluster, func(err error) bool { return errors.Is(err, errAnotherCluster) }},
	{CauseDirectory, func(err error) bool { return errors.Is(err, errUnlisted) }},
	{CauseSilent, reflector.IsSilence},
	{CauseUnauthorized, apierrors.IsUnauthorized},
	{CauseForbidden, apierrors.IsForbidden},
	{CauseBusy, func(err error) bool {
		return reflector.ReasonOf(err) == reflector.Busy || apierrors.IsTooManyRequests(err)
	}},
	{CauseDiscovery, isAs[*kube.GroupError]},
	{CauseNotServed, func(err error) bool {
		return reflector.ReasonOf(err) == reflector.NotServed || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
	}},
	{CauseServer, isAs[apierrors.APIStatus]},
	{CauseCertificate, isAs[*tls.CertificateVerificationError]},
	{CauseCertificate, isAs[x509.CertificateInvalidError]},
	{CauseCertificate, isAs[x509.UnknownAuthorityError]},
	{CauseUnreachable, func(err error) bool { return reflector.ReasonOf(err) == reflector.Refused }},
	{CauseUnreachable, isAs[interface{ Timeout() bool }]}, // every error of package net, and a deadline
	{CauseUnreachable, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
}

// isAs reports whether an error is of a type, or wraps one that is.
func isAs[E any](err error) bool {
	var e E
	return errors.As(err, &e)
}

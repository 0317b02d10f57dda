// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"

	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/kube"
)

type (
	// Status is the status of a member: its [State], since when and why, the counts of its
	// resources, and those that fail. [Status.Problems] lists what people should know.
	Status = health.Status
	// ResourceStatus is the status of one resource of a member: that of its informer, and its last
	// verification.
	ResourceStatus = health.ResourceStatus
	// State is the stage of a member's life.
	State = health.State
	// Problem is a cause for concern about a cluster: a reason, which is a [Trouble] or one of the
	// constants of this package, and a message for people.
	Problem = health.Problem
	// Trouble classifies the cause of an error of a cluster. The values do not change between
	// releases, so that programs can act on them.
	Trouble = health.Trouble
	// Probe is what a single request shows about an API server: its version, how far its clock is
	// ahead, and how long it took.
	Probe = health.Probe
	// Identity distinguishes a cluster from others: by the UID of its namespace kube-system
	// together with its endpoint or, if the UID cannot be read, by its endpoint and its
	// certificate authority. The endpoint is part of it because a cluster that was restored
	// from the backup of another has the same UID.
	Identity = upstream.Identity
)

// The states of a member.
const (
	// Connecting means that the cluster's resources have not been discovered yet. Its last
	// state may be readable, see [Options.LastState].
	Connecting = health.Connecting
	// Syncing means that some resources are being listed for the first time.
	Syncing = health.Syncing
	// Live means that all resources are current.
	Live = health.Live
	// Stale means that some resources are not current. Reads return their last known
	// state.
	Stale = health.Stale
	// Gone means that the member has left the fleet.
	Gone = health.Gone
)

// The causes of errors, which are reasons of problems too.
const (
	// Unreachable means that no connection to the API server could be made, or that it broke.
	Unreachable = health.Unreachable
	// Silent means that the API server keeps a connection open and sends nothing.
	Silent = health.Silent
	// TimedOut means that the API server accepted the connection and did not answer in time.
	TimedOut = health.TimedOut
	// CertificateExpired means that a certificate is past its end, or has not begun.
	CertificateExpired = health.CertificateExpired
	// UnknownAuthority means that the configured authority did not sign the server's certificate.
	UnknownAuthority = health.UnknownAuthority
	// WrongHost means that the certificate of the API server is for other names.
	WrongHost = health.WrongHost
	// NoCredentials means that the directory has no usable credentials for the cluster.
	NoCredentials = health.NoCredentials
	// Unauthorized means that the API server does not accept the credentials.
	Unauthorized = health.Unauthorized
	// Forbidden means that the credentials lack a right.
	Forbidden = health.Forbidden
	// NotServed means that the cluster does not serve the resource.
	NotServed = health.NotServed
	// Busy means that the API server asks clients to retry later.
	Busy = health.Busy
	// ServerError means that the API server answers with another error.
	ServerError = health.ServerError
	// DiscoveryFailed means that a part of discovery is missing, because a server behind an
	// aggregated API does not respond.
	DiscoveryFailed = health.DiscoveryFailed
	// LimitExceeded means that the cluster exceeds a limit of the fleet.
	LimitExceeded = health.LimitExceeded
	// OutOfMemory means that the process has no memory for the resource.
	OutOfMemory = health.OutOfMemory
	// AnotherCluster means that the address leads to another cluster than before.
	AnotherCluster = health.AnotherCluster
	// Failed is any other cause.
	Failed = health.Failed
)

// The reasons of problems that are not a [Trouble].
const (
	// TypeRemoved means that the cluster has ceased to serve a resource that was mirrored.
	TypeRemoved = health.TypeRemoved
	// ClockSkew means that the clocks of the cluster and of this program differ.
	ClockSkew = health.ClockSkew
	// Slow means that the API server takes long to answer.
	Slow = health.Slow
	// Flapping means that the copy was interrupted several times within ten minutes.
	Flapping = health.Flapping
	// NameTaken means that another cluster of the same name is left out, or that another
	// cluster had the name until recently.
	NameTaken = health.NameTaken
	// Diverged means that a verification has found a copy that differs from the cluster.
	Diverged = health.Diverged
	// ClusterIsNewer means that the cluster is newer than the types of this program.
	ClusterIsNewer = health.ClusterIsNewer
	// NotStored means that the objects of the cluster are not stored in files, so that they are
	// listed again after a restart, and have no past.
	NotStored = health.NotStored
)

// KubernetesMinor is the minor version of Kubernetes whose types this program has. An API server
// that is newer may have fields that the types lack.
const KubernetesMinor = health.KubernetesMinor

// TroubleOf returns the cause of an error, "" if err is nil.
func TroubleOf(err error) Trouble { return health.TroubleOf(err) }

// NewProbe requests the version of a cluster.
func NewProbe(ctx context.Context, cluster *kube.Cluster) (Probe, error) {
	return health.NewProbe(ctx, cluster)
}

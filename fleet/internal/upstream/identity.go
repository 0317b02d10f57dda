// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/storage"
)

// Identity distinguishes a cluster from others: by the UID of its namespace kube-system
// together with its endpoint or, if the UID cannot be read, by its endpoint and its
// certificate authority. The endpoint is part of it because a cluster that was restored
// from the backup of another has the same UID.
type Identity struct {
	// UID is that of the namespace kube-system. It is empty if the cluster has not been
	// reached, or its credentials do not allow reading that namespace. Then another
	// cluster at the same endpoint is not detected, and nothing is stored in files.
	UID string
	// Endpoint is the address of the API server, without credentials.
	Endpoint string
	// Authority is the SHA-256 of the configured certificate authority in hexadecimal,
	// empty if there is none.
	Authority string
}

// Same reports whether two identities are those of one cluster.
func (i Identity) Same(other Identity) bool {
	if i.UID != "" && other.UID != "" {
		return i.UID == other.UID && i.Endpoint == other.Endpoint
	}
	return i.Endpoint == other.Endpoint && i.Authority == other.Authority
}

// identityOf returns the part of an identity that the configuration has.
func identityOf(cfg *rest.Config) Identity {
	i := Identity{Endpoint: cfg.Host}
	if u, err := url.Parse(cfg.Host); err == nil {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		i.Endpoint = u.String()
	}
	if len(cfg.CAData) > 0 || cfg.CAFile != "" {
		sum := sha256.Sum256(append([]byte(cfg.CAFile+"\x00"), cfg.CAData...))
		i.Authority = hex.EncodeToString(sum[:])
	}
	return i
}

// identifyTimeout limits how long a cluster may take to return its identity.
const identifyTimeout = 10 * time.Second

// ErrAnotherCluster is returned to sources whose requests reached a cluster with another
// identity than theirs.
var ErrAnotherCluster = errors.New("another cluster now has the address")

// errReconfigured is returned for the answer of a server whose configuration was replaced before it
// answered.
var errReconfigured = errors.New("the configuration of the cluster has changed meanwhile")

// Identification records how a member recognizes its cluster. All methods are safe for concurrent
// use.
type Identification struct {
	// requesting is held while the identity is requested.
	requesting sync.Mutex

	// mu guards the fields below: the identity, and the connection on which it was confirmed
	// last, which is only compared.
	mu       sync.Mutex
	identity Identity
	conn     any
	// certain means that the cluster has returned its UID since the configuration changed last,
	// and nothing has disproved that since.
	certain bool
	// assumed is the UID whose stored objects are used before the cluster has returned its UID,
	// "" if none are.
	assumed string
}

// Identity returns the identity of the cluster, as far as it is known.
func (k *Identification) Identity() Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.identity
}

// Stored returns the identity of the cluster for stored objects. The error is
// [storage.ErrUnidentified] if they are not stored.
func (k *Identification) Stored() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return storage.ClusterIdentity(cmp.Or(k.identity.UID, k.assumed), k.identity.Endpoint)
}

// Reach records how the cluster is reached now.
func (k *Identification) Reach(cfg *rest.Config) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := identityOf(cfg)
	i.UID = k.identity.UID
	k.identity, k.conn, k.certain = i, nil, false
}

// Returned returns the UID that the cluster has returned, "" if it has not, and its endpoint.
func (k *Identification) Returned() (uid, endpoint string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.certain {
		return "", ""
	}
	return k.identity.UID, k.identity.Endpoint
}

// Assume records the UID whose stored objects are used until the cluster returns its UID, and
// returns the one before. An earlier process received it from the cluster. If it is "", none are
// used. What the cluster has returned before does not count any more.
func (k *Identification) Assume(uid string) (was string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, k.assumed, k.certain = k.assumed, uid, false
	return was
}

// IsAssumed reports whether stored objects are in use whose UID the cluster has not confirmed yet.
func (k *Identification) IsAssumed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.assumed != ""
}

// answer compares the UID that the cluster has returned on a connection with the known or assumed
// UID. "uid" is "" if the credentials may not read it, or there is no namespace kube-system. The
// error is ErrAnotherCluster if the UIDs differ, and [storage.ErrUnidentified] if a UID is assumed and
// the cluster returned none. It is errReconfigured, and nothing has changed, if "current" returns
// false: the configuration over which the UID was returned is not in use any more. That is decided
// under the lock, because Reach is called after a configuration was replaced.
// "confirmed" reports whether the cluster has confirmed an assumed UID.
func (k *Identification) answer(uid string, conn any, current func() bool) (confirmed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := cmp.Or(k.identity.UID, k.assumed)
	switch {
	case !current():
		return false, errReconfigured
	case uid == "" && k.assumed != "":
		return false, storage.ErrUnidentified
	case uid != "" && was != "" && uid != was:
		return false, fmt.Errorf("%w: the UID of kube-system is %s, and was %s", ErrAnotherCluster, uid, was)
	}
	confirmed = k.assumed != ""
	k.identity.UID, k.conn, k.certain, k.assumed = cmp.Or(uid, was), conn, uid != "", ""
	return confirmed, nil
}

// confirmed reports whether the cluster has been recognized on a connection.
func (k *Identification) confirmed(conn any) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return conn != nil && conn == k.conn
}

// arrival records the connection of a request.
type arrival struct {
	mu   sync.Mutex
	conn any
}

// traced returns a context whose request records its connection.
func (a *arrival) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conn = info.Conn
	}})
}

func (a *arrival) connection() any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn
}

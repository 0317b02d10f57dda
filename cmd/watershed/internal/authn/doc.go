// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package authn authenticates the callers of the replica. A [Cluster] authenticates them as
// one cluster does: by client certificates of the cluster's authority and by bearer tokens
// that the cluster reviews. An [OIDC] authenticates them by the tokens of an issuer.
//
//	a := authn.New(cluster, nil)
//	defer a.Close()
//	id, err := a.Authenticate(r.Context(), r)
//
// # Guarantees
//
//   - A token is sent to the cluster that it is used for and to no other server. Caches
//     belong to one Cluster, so the identity of one cluster is never used in another.
//   - Name, groups, UID and extra values are those that kube-apiserver reports for the same
//     credentials. No caller is anonymous: one without credentials, or whose credentials
//     name system:anonymous or the group system:unauthenticated, gets a 401. The headers
//     X-Remote-* are not read.
//   - If the cluster lets the program review no tokens, it is asked with the token itself, after
//     [kube.Cluster.CheckCallers] has found that it tells callers apart. Else no token is
//     accepted: a proxy that adds credentials would know every caller by their user.
//   - A 401 means that the credentials were checked and are not valid, or are malformed. If
//     they could not be checked the error is a 503. Both are statuses for the caller, without
//     addresses, causes or tokens; causes are logged, each kind once a minute as a warning.
//   - A token that was revoked is refused after [Options.CacheTTL] and the time for which the
//     cluster itself remembers it, which is 10 s by default. A cached token is not used after
//     its own exp.
//   - A change of the cluster's authority is followed within [Options.CARefresh].
//   - A caller whose token was valid before is not affected by the unknown tokens of others:
//     it is not subject to their limits, and they cannot evict it.
//
// # What blocks
//
// Authenticate blocks on the cluster or the issuer if the credentials are not in a cache, up
// to [Options.Timeout] or the end of its context. Callers with the same token wait for one
// review. A caller with a certificate waits only if no usable authority is known, or up to
// 1 s if the last one is older than [Options.CARefresh] and the cluster has responded so far.
//
// # Bounds and ownership
//
// For each Cluster: 4096 accepted tokens in 4 MB, 4096 refused tokens in 1 MB, 4096
// certificates in 4 MB, 4096 addresses in 1.5 MB. At most 16 unknown tokens are reviewed at
// once and 200 per second, of which 10 per second from one address, after a burst of 50; valid
// tokens do not count against the address. 16 more reviews may run for tokens that were valid
// before. A response of the cluster or the issuer is limited to 1 MB. The caller that made a
// Cluster or an OIDC must close it; Close waits for the goroutines.
package authn

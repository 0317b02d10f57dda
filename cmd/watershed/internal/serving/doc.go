// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package serving runs an HTTPS server that can face a network: its certificates, its
// connections, its time limits, and its end. It does not identify clients.
//
// # Certificates
//
// [Files] reads the server's certificate from files and follows their changes. [Authority]
// signs one, for a first try. Neither needs a restart to rotate keys.
//
// Clients are asked for a certificate, and the handshake accepts any. Which authority has to
// have signed it depends on the cluster that a request addresses, so each request verifies
// it. The list of acceptable authorities that the server sends is empty: it would show the
// authorities of all clusters to everyone, and Go's clients send no certificate that is not
// on the list.
//
// TLS sessions are not resumed. A session ticket contains the client's certificate, so a
// resumed connection has a certificate whose private key was proven in an earlier
// handshake, up to seven days ago. The verification per request would notice that it has
// expired or that its authority is gone, but not that the key is. Go's clients, client-go
// among them, do not resume sessions unless a program asks for it, so little is lost.
//
// # Bounds and ownership
//
//   - Connections: [Options.Connections] in total, and [Options.ConnectionsPerAddress] per
//     remote address (per /64 network for IPv6). A connection above the limit of its address is
//     reset when it is accepted. If the total is reached, the oldest connection without an
//     authenticated caller is reset to make room, see [Authenticated]. If all have one, the new
//     connection is reset.
//   - Memory: a connection that has not finished its handshake takes 11 KB of heap and
//     stack, one that has takes 32 to 37 KB before its first request (make attack). Headers
//     are limited to 64 KB, and so are bodies. Bodies on HTTP/1 must have a Content-Length.
//   - Time: 10 s for the handshake, for the headers of each request on HTTP/1, and for a
//     body; 2 minutes for an idle connection. Responses have no limit here, because watches
//     are long; the replica cuts off clients that do not read.
//   - HTTP/2: 250 streams per connection, frames of 16 KB, 64 KB of buffered bodies. Go's
//     server adds the following. Streams that are reset early still count until their
//     handler has returned, and the connection ends when four times the streams wait for
//     that (rapid reset). It ends too when 10,000 responses to PING, SETTINGS and the like
//     are queued, when headers continue beyond their limit, and when a client that has sent
//     nothing for 30 s does not answer a PING.
//
// The caller owns the listener until [Server.Run] is called, which closes it.
//
// # The end
//
// When the context of [Server.Run] ends, the server first reports that it is not ready and
// goes on for [Options.ReadinessDelay], so that load balancers notice. Then it closes the
// listener, ends watches, and asks clients to open no more requests on their connections.
// Other requests have [Options.Grace] to finish.
package serving

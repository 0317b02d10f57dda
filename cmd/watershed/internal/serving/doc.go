// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package serving runs an HTTPS server that can face a network. It handles the server's certificates,
// connections, time limits and shutdown. It does not identify clients.
//
// # Certificates
//
// [Files] reads the server's certificate from files and follows changes of the files. [Authority] signs a
// certificate, so that a first try needs no certificate files. Neither needs a restart to rotate keys.
//
// The handshake asks clients for a certificate, and accepts any certificate. Which authority must have
// signed the certificate depends on the cluster that a request addresses, so the certificate is verified
// for each request. The server sends an empty list of acceptable authorities. A complete list would show
// the authorities of all clusters to everyone, and with an incomplete list Go's clients would withhold a
// certificate whose authority is missing.
//
// TLS sessions are not resumed. A session ticket contains the client's certificate. On a resumed
// connection, the client proved that it has the private key only in an earlier handshake, up to seven days
// ago. The verification of each request would notice that the certificate has expired, or that its
// authority is not accepted any more, but not that the client no longer has the key. Little is lost,
// because Go's clients, client-go among them, resume sessions only if a program asks for it.
//
// # Bounds and ownership
//
//   - Connections: [Options.Connections] in total, and [Options.ConnectionsPerAddress] per
//     remote address (per /64 network for IPv6). A connection above the limit of its address is
//     reset when it is accepted. If the total is reached, the server makes room: it resets the oldest
//     connection without an authenticated caller, see [Authenticated]. If all connections have
//     an authenticated caller, the new connection is reset.
//   - Memory: a connection takes 11 KB of heap and stack before its handshake has finished, and
//     32 to 37 KB between the handshake and its first request (make attack). Headers are
//     limited to 64 KB, and bodies too. A body on HTTP/1 must have a Content-Length.
//   - Time: 10 s for the handshake, for the headers of each request on HTTP/1, and for a
//     body; 2 minutes for an idle connection. This package does not limit the time of a response,
//     because watches are long. The replica cuts off clients that do not read.
//   - HTTP/2: 250 streams per connection, frames of 16 KB, 64 KB of buffered bodies. Go's
//     server adds limits of its own. A stream that the client resets early counts until its
//     handler has returned. If more than four times 250 streams wait for their handler to start,
//     the connection ends (rapid reset). The connection also ends when 10,000 responses to
//     frames such as PING and SETTINGS are queued, when headers continue beyond their limit, and
//     when a client has sent nothing for 30 s and does not answer a PING.
//
// The caller owns the listener until it calls [Server.Run], which closes the listener.
//
// # Shutdown
//
// When the context of [Server.Run] ends, the server reports that it is not ready, and continues for
// [Options.ReadinessDelay], so that load balancers notice. Then it closes the listener, ends watches, and
// asks clients to send no more requests on their connections. Other requests have [Options.Grace] to
// finish.
package serving

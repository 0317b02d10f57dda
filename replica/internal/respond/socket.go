// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 prescribes it; it proves that the server speaks the protocol, not who it is
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/status"
)

const (
	// maxControl limits the bytes of a ping, a pong or a close (RFC 6455, 5.5).
	maxControl = 125
	// bearerPrefix begins a subprotocol that carries a token. It is never sent back.
	bearerPrefix = "base64url.bearer.authorization.k8s.io."
)

// The kinds of messages and frames (RFC 6455, 5.2).
const (
	TextMessage   byte = 1
	BinaryMessage byte = 2
	closeFrame    byte = 8
	pingFrame     byte = 9
	pongFrame     byte = 10
)

// The reasons in a close (RFC 6455, 7.4.1).
const (
	closeNormal   = 1000
	closeProtocol = 1002
	closeTooLong  = 1009
)

// WantsSocket reports whether a client wants a WebSocket. It applies the test of
// kube-apiserver. HTTP/2 does not have these headers.
func WantsSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		slices.ContainsFunc(r.Header["Connection"], func(value string) bool {
			return strings.Contains(strings.ToLower(value), "upgrade")
		})
}

// Handshake is the part of a request for a WebSocket that the response depends on.
type Handshake struct {
	key, protocol string
}

// CheckHandshake returns the handshake of a request that [WantsSocket]. It refuses the
// handshakes that kube-apiserver refuses: without an Origin that is a URL, in another version
// of the protocol, and with several subprotocols. Subprotocols that carry a token do not
// count.
//
// If there is access control, any Origin is good, as for kube-apiserver: no cookie identifies
// a user, and a page of another site can neither add an Authorization header to a WebSocket
// nor know a token. The credential that a browser adds by itself is a client certificate. So a
// handshake that the browser declares to be of another site must bring a token, and if ambient
// means that the caller is known by a certificate, no token helps: a page can make one up. Without
// access control, which guarded reports, only pages of this server may connect: the rules that
// keep other pages from reading a response do not apply to WebSockets.
func CheckHandshake(r *http.Request, h http.Header, guarded, ambient bool) (Handshake, error) {
	c := Handshake{key: r.Header.Get("Sec-Websocket-Key")}
	if c.key == "" {
		return c, apierrors.NewBadRequest("the handshake of the WebSocket has no Sec-WebSocket-Key")
	}
	if version := r.Header.Get("Sec-Websocket-Version"); version != "13" {
		h.Set("Sec-Websocket-Version", "13")
		return c, apierrors.NewBadRequest(fmt.Sprintf("WebSocket version %q is not supported: use 13", version))
	}
	origin, err := url.ParseRequestURI(r.Header.Get("Origin"))
	switch {
	case err != nil:
		return c, forbidden("the handshake of the WebSocket has no Origin that is a URL")
	case !guarded && !strings.EqualFold(origin.Host, r.Host):
		return c, forbidden("without access control, only pages of this server may open a WebSocket")
	}
	token := r.Header.Get("Authorization") != ""
	for _, header := range r.Header["Sec-Websocket-Protocol"] {
		for name := range strings.SplitSeq(header, ",") {
			switch name = strings.TrimSpace(name); {
			case strings.HasPrefix(name, bearerPrefix):
				token = true
			case name != "" && c.protocol != "":
				return c, apierrors.NewBadRequest("the handshake of the WebSocket has several subprotocols: use one, " +
					"beside the one with a token")
			case name != "":
				c.protocol = name
			}
		}
	}
	if (!token || ambient) && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return c, forbidden("a page of another site must send a valid token with the handshake of a WebSocket")
	}
	return c, nil
}

func forbidden(message string) error {
	return status.New(http.StatusForbidden, metav1.StatusReasonForbidden, message)
}

// response returns the response that begins the WebSocket, with the headers h.
func (c Handshake) response(h http.Header) []byte {
	sum := sha1.Sum([]byte(c.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // see the import
	h = h.Clone()
	h.Del("Content-Type") // the media type of messages is not one of this response
	h.Set("Upgrade", "websocket")
	h.Set("Connection", "Upgrade")
	h.Set("Sec-Websocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	if c.protocol != "" {
		h.Set("Sec-Websocket-Protocol", c.protocol)
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = h.Write(&b) // a buffer accepts all writes
	b.WriteString("\r\n")
	return b.Bytes()
}

// Socket is a WebSocket that a [Response] has become. Messages are written with
// [Response.Write]; each call must have whole messages. A goroutine reads: it answers pings,
// ignores messages, and ends the context when the client closes the connection. It holds the
// 4 KB with which net/http reads a connection.
type Socket struct {
	*Response
	ctx context.Context
	// reason is the code of the close. The reader changes it if the client breaks the protocol.
	reason atomic.Uint32
	read   chan struct{} // closed when the reader has ended
}

// Upgrade turns a response of which nothing has been written into a WebSocket. The caller
// closes it.
func Upgrade(p *Response, r *http.Request, c Handshake) (*Socket, error) {
	ctx, from, err := p.take(r.Context(), http.StatusSwitchingProtocols)
	if err != nil {
		return nil, err
	}
	s := &Socket{Response: p, ctx: ctx, read: make(chan struct{})}
	s.reason.Store(closeNormal)
	if p.begun != nil {
		p.begun()
	}
	_, _ = s.Write(c.response(s.Header())) // if it fails, so does the next write
	go s.receive(from)
	return s, nil
}

// Context ends when the request does, and when the client closes the connection.
func (s *Socket) Context() context.Context { return s.ctx }

// Close sends the end of the messages, and closes the connection.
func (s *Socket) Close() {
	s.release(binary.BigEndian.AppendUint16(AppendFrame(nil, closeFrame, 2), uint16(s.reason.Load())))
	<-s.read
}

// AppendFrame appends the header of a frame with n bytes, which follow it.
func AppendFrame(b []byte, kind byte, n int) []byte {
	b = append(b, 0x80|kind)
	switch {
	case n <= maxControl:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
}

// receive reads from the client until it closes the connection or breaks the protocol.
func (s *Socket) receive(r *bufio.Reader) {
	defer s.taken.end()
	defer close(s.read)
	for {
		kind, payload, err := readFrame(r)
		var broken *protocolError
		switch {
		case errors.As(err, &broken):
			s.reason.Store(broken.code)
			return
		case err != nil, kind == closeFrame:
			return
		case kind == pingFrame:
			if _, err := s.Write(append(AppendFrame(nil, pongFrame, len(payload)), payload...)); err != nil {
				return
			}
		}
	}
}

// protocolError is a frame that ends the connection.
type protocolError struct{ code uint32 }

func (e *protocolError) Error() string { return fmt.Sprintf("WebSocket frame: code %d", e.code) }

// readFrame reads a frame. It returns the payload of control frames, and drops that of others.
func readFrame(r *bufio.Reader) (kind byte, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	kind = head[0] & 0x0f
	control := kind >= closeFrame
	n := uint64(head[1] & 0x7f)
	switch {
	case head[0]&0x70 != 0, head[1]&0x80 == 0, control && (n > maxControl || head[0]&0x80 == 0):
		return kind, nil, &protocolError{closeProtocol} // an extension, no mask, a control frame in parts
	case n == 126:
		if _, err := io.ReadFull(r, head[2:4]); err != nil {
			return kind, nil, err
		}
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case n == 127: // 64 KB or more, though nothing that a client sends is used
		return kind, nil, &protocolError{closeTooLong}
	}
	mask := head[4:8]
	if _, err := io.ReadFull(r, mask); err != nil {
		return kind, nil, err
	}
	if !control {
		_, err := r.Discard(int(n))
		return kind, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return kind, payload, err
}

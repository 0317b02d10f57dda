// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// message is a message of a WebSocket.
type message struct {
	kind    byte
	payload []byte
}

// event returns the event in a message, and an error if the message does not have exactly
// one.
func (m message) event() (event, error) {
	var all []event
	add := func(e event) { all = append(all, e) }
	var err error
	if m.kind == websocket.TextFrame {
		err = readJSONEvents(bytes.NewReader(m.payload), add)
	} else {
		n := len(m.payload)
		err = readProtobufEvents(io.MultiReader(bytes.NewReader([]byte{
			byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n),
		}), bytes.NewReader(m.payload)), add)
	}
	if err != nil || len(all) != 1 {
		return event{}, fmt.Errorf("message %q has %d events: %w", m.payload, len(all), err)
	}
	return all[0], nil
}

// dialSocket connects to a subject.
func dialSocket(ctx context.Context, s *subject) (net.Conn, error) {
	root, err := url.Parse(s.root)
	if err != nil {
		return nil, err
	}
	config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = nil
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", root.Host)
}

// openSocket starts a watch as a WebSocket.
func openSocket(ctx context.Context, s *subject, r request, protocols ...string) (*websocket.Conn, error) {
	config, err := websocket.NewConfig("wss"+strings.TrimPrefix(s.root, "https")+r.URI, s.root)
	if err != nil {
		return nil, err
	}
	config.Protocol = protocols
	if r.Accept != "" {
		config.Header.Set("Accept", r.Accept)
	}
	if s.token != "" {
		config.Header.Set("Authorization", "Bearer "+s.token)
	}
	conn, err := dialSocket(ctx, s)
	if err != nil {
		return nil, err
	}
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		_ = conn.Close()
	}
	return ws, err
}

// readSocket reads all messages until the server ends the watch.
func readSocket(ws *websocket.Conn) ([]message, error) {
	var all []message
	codec := websocket.Codec{Unmarshal: func(data []byte, kind byte, _ any) error {
		all = append(all, message{kind, data})
		return nil
	}}
	for {
		if err := codec.Receive(ws, nil); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
	}
}

// socketAnswer opens a watch, calls begun, and returns the messages and the same as a
// response.
func (w *comparedCluster) socketAnswer(ctx context.Context, s *subject, r request, begun func()) ([]message, *answer) {
	expanded, err := w.expand(ctx, s, r)
	if err != nil {
		begun()
		return nil, &answer{err: err}
	}
	ws, err := openSocket(ctx, s, expanded, "base64.binary.k8s.io")
	begun()
	if err != nil {
		return nil, &answer{err: err}
	}
	defer ws.Close()
	_ = ws.SetDeadline(time.Now().Add(patience))
	messages, err := readSocket(ws)
	a := &answer{code: http.StatusOK, header: http.Header{}, err: err}
	for _, m := range messages {
		e, err := m.event()
		if err != nil {
			a.err = err
		}
		a.events = append(a.events, e)
	}
	return messages, a
}

// TestSocket compares watches that are WebSockets: the messages, their kinds and their
// events.
func TestSocket(t *testing.T) {
	w := theComparedCluster(t)
	const (
		maps   = "/api/v1/namespaces/bare/configmaps?watch=true&timeoutSeconds=4"
		stream = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	)
	var requests []request
	for _, accept := range []string{
		"", jsonAccept, protobufAccept, tableAccept, objectAccept,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	} {
		for _, uri := range []string{
			maps + "&resourceVersion=${rv}", "/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=4",
			"/api/v1/namespaces/shop/pods?watch=true&timeoutSeconds=4" + stream,
			maps + "&resourceVersion=${rv}&labelSelector=a%3Db",
			"/api/v1/watch/namespaces/shop/configmaps/settings?timeoutSeconds=4",
		} {
			requests = append(requests, request{Category: "sockets", Method: http.MethodGet, URI: uri, Accept: accept})
		}
	}
	requests = append(requests, request{
		Category: "sockets",
		Method:   http.MethodGet,
		Accept:   tableAccept,
		URI:      "/apis/example.com/v1/widgets?watch=true&timeoutSeconds=4" + stream,
	},
		request{
			Category: "sockets",
			Method:   http.MethodGet,
			Accept:   jsonAccept,
			URI:      "/apis/example.com/v1/widgets?watch=true&timeoutSeconds=4",
		})
	type side struct {
		messages []message
		answer   *answer
	}
	sides := make([][2]side, len(requests))
	var opening, all sync.WaitGroup
	for i, r := range requests {
		for j, s := range []*subject{w.server, w.copy} {
			opening.Add(1)
			all.Go(func() {
				sides[i][j].messages, sides[i][j].answer = w.socketAnswer(t.Context(), s, r, opening.Done)
			})
		}
	}
	opening.Wait()
	if err := w.changeMap(t.Context(), "bare", "socket"); err != nil {
		t.Error(err)
	}
	all.Wait()
	n := 0
	for i, r := range requests {
		server, copy := sides[i][0], sides[i][1]
		if res := w.compare(&w.columns()[0], r, server.answer, copy.answer); len(res.found) > 0 {
			t.Errorf("%s\n\t%s", r, findings(res.found))
		}
		if len(server.messages) == 0 && !strings.Contains(r.URI, "labelSelector") {
			t.Errorf("%s: the server has sent nothing", r)
		}
		for k := range min(len(server.messages), len(copy.messages)) {
			a, b := server.messages[k], copy.messages[k]
			n++
			if a.kind != b.kind || bytes.HasSuffix(a.payload, []byte("\n")) != bytes.HasSuffix(b.payload,
				[]byte("\n")) {
				t.Errorf("%s: message %d is of kind %d and ends with %q, want kind %d and %q", r, k, b.kind,
					b.payload[len(b.payload)-1:], a.kind, a.payload[len(a.payload)-1:])
			}
		}
	}
	t.Logf("%d watches, %d messages compared", len(requests), n)
}

// changeMap creates, changes and deletes a config map.
func (w *comparedCluster) changeMap(ctx context.Context, namespace, name string) error {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"long": strings.Repeat("x", 100<<10)},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"long":"short"}}`),
		metav1.PatchOptions{}); err != nil {
		return err
	}
	return maps.Delete(ctx, name, metav1.DeleteOptions{})
}

// TestSocket_handshakes compares the responses to handshakes.
func TestSocket_handshakes(t *testing.T) {
	w := theComparedCluster(t)
	const path = "/api/v1/namespaces/bare/configmaps?watch=true&timeoutSeconds=1"
	for _, c := range []struct {
		name, path string
		header     []string // replaces that of a good handshake; "" removes one
	}{
		{"good", path, nil},
		{"several words", path, []string{"Connection", "keep-alive, Upgrade", "Upgrade", "WebSocket"}},
		{"subprotocol", path, []string{"Sec-Websocket-Protocol", "base64.binary.k8s.io"}},
		{"unknown subprotocol", path, []string{"Sec-Websocket-Protocol", "chat"}},
		{"two subprotocols", path, []string{"Sec-Websocket-Protocol", "base64.binary.k8s.io, chat"}},
		{"no origin", path, []string{"Origin", ""}},
		{"null origin", path, []string{"Origin", "null"}},
		{"no key", path, []string{"Sec-Websocket-Key", ""}},
		{"version", path, []string{"Sec-Websocket-Version", "12"}},
		{"other protocol", path, []string{"Upgrade", "spdy/3.1"}},
		{"not a connection header", path, []string{"Connection", "close"}},
		{"not a resource", "/api/v1/nothings?watch=true", nil},
		{"selector", path + "&labelSelector=!!", nil},
		{"version of the resource", path + "&resourceVersion=x", nil},
		{"accept", path, []string{"Accept", "application/yaml"}},
	} {
		var got [2]string
		for i, s := range []*subject{w.server, w.copy} {
			resp, err := handshake(t.Context(), s, c.path, c.header)
			if err != nil {
				t.Fatalf("%s: %s: %v", c.name, s.name, err)
			}
			got[i] = fmt.Sprintf("%d, subprotocol %q, version %q, accept %q", resp.StatusCode,
				resp.Header.Get("Sec-Websocket-Protocol"), resp.Header.Get("Sec-Websocket-Version"),
				resp.Header.Get("Sec-Websocket-Accept"))
		}
		if got[0] != got[1] {
			t.Errorf("%s: the server has %s, the replica %s", c.name, got[0], got[1])
		}
		t.Logf("%s: %s", c.name, got[0])
	}
}

// TestSocket_token sends the token of the user as a subprotocol, which is not sent back.
func TestSocket_token(t *testing.T) {
	w := theComparedCluster(t)
	for _, s := range []*subject{w.server, w.copy} {
		header := []string{
			"Authorization", "", "Sec-Websocket-Protocol",
			"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(s.token)) +
				", base64.binary.k8s.io",
		}
		resp, err := handshake(t.Context(), s, "/api/v1/namespaces/bare/configmaps?watch=true&timeoutSeconds=1", header)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols ||
			resp.Header.Get("Sec-Websocket-Protocol") != "base64.binary.k8s.io" {
			t.Errorf("%s: %s %v", s.name, resp.Status, resp.Header)
		}
	}
}

// handshake sends the request for a WebSocket and returns the response. The connection is
// closed.
func handshake(ctx context.Context, s *subject, path string, header []string) (*http.Response, error) {
	h := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {s.root},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"},
	}
	if s.token != "" {
		h.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		h.Del(header[i])
		if header[i+1] != "" {
			h.Set(header[i], header[i+1])
		}
	}
	conn, err := dialSocket(ctx, s)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	root, err := url.Parse(s.root)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	_ = h.Write(&text)
	if _, err := fmt.Fprintf(conn, "GET %s%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", s.prefix, path, root.Host,
		text.String()); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_ = resp.Body.Close()
	}
	return resp, err
}

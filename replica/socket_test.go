// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// socketClient is the client of a WebSocket.
type socketClient struct {
	net.Conn
	r *bufio.Reader
}

// upgrade sends the handshake of a WebSocket and returns the response to it. Headers replace
// those of the handshake; "" removes one.
func (w *pipedReplica) upgrade(path string, header ...string) (*socketClient, *http.Response) {
	w.t.Helper()
	h := http.Header{
		"Host": {"replica"}, "Connection": {"keep-alive, Upgrade"}, "Upgrade": {"WebSocket"},
		"Origin":            {"http://replica"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"},
	}
	for i := 0; i+1 < len(header); i += 2 {
		h.Del(header[i])
		if header[i+1] != "" {
			h.Set(header[i], header[i+1])
		}
	}
	c, err := w.network.dial(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	var text strings.Builder
	_ = h.Write(&text)
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\n%s\r\n", path, text.String()); err != nil {
		w.t.Fatal(err)
	}
	client := &socketClient{c, bufio.NewReader(c)}
	resp, err := http.ReadResponse(client.r, nil)
	if err != nil {
		w.t.Fatalf("%s: %v", path, err)
	}
	return client, resp
}

// frame reads a frame of the server.
func (c *socketClient) frame() (kind byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, "", err
	}
	if head[0]&0xf0 != 0x80 || head[1]&0x80 != 0 {
		return 0, "", fmt.Errorf("the frame begins with %x", head)
	}
	n := uint64(head[1])
	switch n {
	case 126:
		var long [2]byte
		_, err = io.ReadFull(c.r, long[:])
		n = uint64(binary.BigEndian.Uint16(long[:]))
	case 127:
		var long [8]byte
		_, err = io.ReadFull(c.r, long[:])
		n = binary.BigEndian.Uint64(long[:])
	}
	if err != nil {
		return 0, "", err
	}
	body := make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return head[0] & 0x0f, string(body), err
}

// send sends a frame with a mask.
func (c *socketClient) send(t *testing.T, kind byte, payload string) {
	t.Helper()
	mask := [4]byte{1, 2, 3, 4}
	b := []byte{0x80 | kind, 0x80 | byte(min(len(payload), 126))}
	switch {
	case len(payload) >= 1<<16:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(len(payload)))
	case len(payload) >= 126:
		b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	if _, err := c.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// closed reads until the server closes the connection, and returns the code of the close.
func (c *socketClient) closed(t *testing.T) int {
	t.Helper()
	code := 0
	for {
		kind, payload, err := c.frame()
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			t.Fatal(err)
		case err != nil:
			return code
		case kind == 8:
			code = int(binary.BigEndian.Uint16([]byte(payload)))
		}
	}
}

const socketPath = "/clusters/one/api/v1/configmaps?watch=1"

// A WebSocket has the events of a watch, one in each message, in every form.
func TestSocket_hasTheEventsOfAWatch(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		path := socketPath +
			"&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=10"
		for _, c := range []struct {
			accept string
			kind   byte
			prefix int
		}{
			{"application/json", 1, 0},
			{"application/vnd.kubernetes.protobuf", 2, 4},
			{"application/json;as=Table;v=v1;g=meta.k8s.io", 1, 0},
			{"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 1, 0},
		} {
			for _, selector := range []string{"", "&labelSelector=app%3Da"} {
				_, _, plain := w.get(path+selector, "Accept", c.accept)
				client, resp := w.upgrade(path+selector, "Accept", c.accept, "Accept-Encoding", "gzip")
				if resp.StatusCode != http.StatusSwitchingProtocols ||
					resp.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
					resp.Header.Get("Content-Type") != "" {
					t.Fatalf("%s: %s %v", c.accept, resp.Status, resp.Header)
				}
				var all strings.Builder
				messages := 0
				for {
					kind, payload, err := client.frame()
					if err != nil {
						t.Fatal(err)
					}
					if kind == 8 {
						break
					}
					if kind != c.kind {
						t.Errorf("%s: a message is of kind %d", c.accept, kind)
					}
					messages++
					if c.prefix > 0 {
						payload = string(binary.BigEndian.AppendUint32(nil, uint32(len(payload)))) + payload
					} else if !strings.HasSuffix(payload, "}\n") || strings.Count(payload, "\n") != 1 {
						t.Errorf("%s: message %q", c.accept, payload)
					}
					all.WriteString(payload)
				}
				_ = client.Close()
				want := 4 // two objects, the end of the initial events, the bookmark before the end
				if selector != "" {
					want--
				}
				if messages != want || all.String() != plain {
					t.Errorf("%s: %d messages, want %d:\n%q, want\n%q", c.accept, messages, want, all.String(), plain)
				}
			}
		}
	})
}

// The error that ends a watch is a message too.
func TestSocket_endsWithAnError(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for accept, want := range map[string]byte{"application/json": 1, "application/vnd.kubernetes.protobuf": 2} {
			client, _ := w.upgrade(socketPath+"&resourceVersion=1", "Accept", accept)
			if kind, payload, err := client.frame(); err != nil || kind != want ||
				!strings.Contains(payload, "ERROR") || !strings.Contains(payload, "too old resource version") {
				t.Errorf("%s: message %q of kind %d: %v", accept, payload, kind, err)
			}
			if code := client.closed(t); code != 1000 {
				t.Errorf("%s: code %d", accept, code)
			}
			_ = client.Close()
		}
	})
}

// A change is sent when it happens, and an object longer than every buffer is one message.
func TestSocket_isLive(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		client, _ := w.upgrade(socketPath + "&resourceVersion=10")
		defer client.Close()
		long := strings.Repeat("x", 200<<10)
		w.origins["one"].events <- `{"type":"ADDED","object":` + strings.TrimSuffix(configMap("c", 11), "}") +
			`,"data":{"text":"` + long + `"}}` + "}\n"
		w.origins["one"].add("d", 12)
		for _, text := range []string{long, `"name":"d"`} {
			if kind, payload, err := client.frame(); err != nil || kind != 1 || !strings.Contains(payload, text) {
				t.Errorf("message %.200q of kind %d: %v", payload, kind, err)
			}
		}
	})
}

// Handshakes get the codes that kube-apiserver has, and a token is never sent back.
func TestSocket_handshakes(t *testing.T) {
	const token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
	for _, c := range []struct {
		name     string
		open     bool // without access control
		header   []string
		code     int
		protocol string
	}{
		{"plain", false, nil, 101, ""},
		{
			"one subprotocol", false, []string{"Sec-Websocket-Protocol", "base64.binary.k8s.io"}, 101,
			"base64.binary.k8s.io",
		},
		{"any subprotocol", false, []string{"Sec-Websocket-Protocol", "chat"}, 101, "chat"},
		{
			"a token", false, []string{
				"Sec-Websocket-Protocol", token + ", base64.binary.k8s.io",
			}, 101, "base64.binary.k8s.io",
		},
		{"only a token", false, []string{"Sec-Websocket-Protocol", token}, 101, ""},
		{"two subprotocols", false, []string{"Sec-Websocket-Protocol", "a, b"}, 400, ""},
		{"no key", false, []string{"Sec-Websocket-Key", ""}, 400, ""},
		{"old version", false, []string{"Sec-Websocket-Version", "8"}, 400, ""},
		{"no origin", false, []string{"Origin", ""}, 403, ""},
		{"null origin", false, []string{"Origin", "null"}, 403, ""},
		{"other origin", false, []string{"Origin", "https://evil.example.com"}, 101, ""},
		{"other site", false, []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"}, 403, ""},
		{
			"other site with a token", false, []string{
				"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site", "Sec-Websocket-Protocol",
				token + ",a",
			}, 101, "a",
		},
		{
			"other site with a header", false, []string{
				"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer x",
			}, 101, "",
		},
		{"other site with a certificate and a made-up token", false, []string{
			"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site", "Sec-Websocket-Protocol",
			token + ",a", "X-Test-Ambient", "yes",
		}, 403, ""},
		{"a certificate", false, []string{"X-Test-Ambient", "yes"}, 101, ""},
		{"without access control", true, nil, 101, ""},
		{"other origin without access control", true, []string{"Origin", "https://evil.example.com"}, 403, ""},
		{"other upgrade", false, []string{"Upgrade", "h2c"}, 200, ""},
		{"no upgrade", false, []string{"Connection", "keep-alive"}, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, []string{"one"}, func(w *pipedReplica) {
				if !c.open {
					w.options.Admit = func(*http.Request, *Request) (func(), error) { return func() {}, nil }
					w.options.Authorize = func(r *http.Request, _ *Request) (*Access, error) {
						return &Access{Ambient: r.Header.Get("X-Test-Ambient") != ""}, nil
					}
				}
			}, func(t *testing.T, w *pipedReplica) {
				time.Sleep(10 * time.Second)
				client, resp := w.upgrade(socketPath, c.header...)
				defer client.Close()
				if resp.StatusCode != c.code || resp.Header.Get("Sec-Websocket-Protocol") != c.protocol {
					t.Errorf("%s with subprotocol %q, want %d %q", resp.Status,
						resp.Header.Get("Sec-Websocket-Protocol"), c.code, c.protocol)
				}
				for name, values := range resp.Header {
					if strings.Contains(strings.Join(values, " "), "c2VjcmV0") {
						t.Errorf("header %s has the token", name)
					}
				}
			})
		})
	}
}

// Errors that come before the upgrade are plain responses, and lists are not upgraded.
func TestSocket_refusesBeforeTheUpgrade(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for path, code := range map[string]int{
			// as kube-apiserver
			"/clusters/none/api/v1/configmaps?watch=1": 404, socketPath + "&labelSelector=!!": 400,
			socketPath + "&resourceVersion=x": 500,

			"/clusters/one/api/v1/configmaps": 200, "/clusters/one/api/v1/nothings?watch=1": 404,
		} {
			client, resp := w.upgrade(path)
			if resp.StatusCode != code {
				t.Errorf("%s: %s, want %d", path, resp.Status, code)
			}
			_ = client.Close()
		}
	})
}

// The server answers pings, ignores messages, and closes the connection of a client that
// breaks the protocol or closes it.
func TestSocket_receives(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		open := func() *socketClient {
			client, _ := w.upgrade(socketPath + "&resourceVersion=10")
			return client
		}
		client := open()
		for _, payload := range []string{"", "hello", strings.Repeat("x", 125)} {
			client.send(t, 1, "ignored")
			client.send(t, 2, strings.Repeat("x", 64<<10-1))
			client.send(t, 9, payload)
			if kind, got, err := client.frame(); kind != 10 || got != payload || err != nil {
				t.Fatalf("ping %q: kind %d, %q, %v", payload, kind, got, err)
			}
		}
		for name, c := range map[string]struct {
			send func(c *socketClient)
			code int
		}{
			"a close":        {func(c *socketClient) { c.send(t, 8, "\x03\xe8") }, 1000},
			"a long frame":   {func(c *socketClient) { go c.send(t, 2, strings.Repeat("x", 64<<10)) }, 1009},
			"a long ping":    {func(c *socketClient) { go c.send(t, 9, strings.Repeat("x", 126)) }, 1002},
			"no mask":        {func(c *socketClient) { _, _ = c.Write([]byte{0x81, 1}) }, 1002},
			"an extension":   {func(c *socketClient) { _, _ = c.Write([]byte{0xc1, 0x81}) }, 1002},
			"part of a ping": {func(c *socketClient) { _, _ = c.Write([]byte{0x09, 0x81}) }, 1002},
		} {
			client := open()
			c.send(client)
			if code := client.closed(t); code != c.code {
				t.Errorf("%s: code %d, want %d", name, code, c.code)
			}
			_ = client.Close()
		}
		_ = client.Close()
		synctest.Wait()
		if n := w.server.tracker.Len(); n > 0 {
			t.Errorf("%d responses are still watched", n)
		}
	})
}

// A client that does not read is cut off, while it is sent events and while it is sent a pong.
func TestSocket_cutsStalledClients(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for name, stall := range map[string]func(*socketClient){
			"events": func(*socketClient) {},
			"a pong": func(c *socketClient) { c.send(t, 9, "x") },
		} {
			path := socketPath
			if name == "a pong" {
				path += "&resourceVersion=10"
			}
			client, _ := w.upgrade(path)
			stall(client)
			time.Sleep(w.server.opts.WriteTimeout + 5*time.Second)
			synctest.Wait()
			if n := w.server.tracker.Len(); n > 0 {
				t.Errorf("%s: the response is still being written", name)
			}
			_ = client.Close()
		}
	})
}

// WebSockets end when the server does, even those whose client does not read. None begins
// after that.
func TestSocket_endsWithTheServer(t *testing.T) {
	inMemory(t, []string{"one"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		reading, _ := w.upgrade(socketPath + "&resourceVersion=10")
		stalled, _ := w.upgrade(socketPath)
		defer stalled.Close()
		defer reading.Close()
		ended := make(chan struct{})
		begun := time.Now()
		go func() {
			w.server.tracker.Disconnect()
			close(ended)
		}()
		if code := reading.closed(t); code != 1000 {
			t.Errorf("code %d", code)
		}
		<-ended
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		late, resp := w.upgrade(socketPath)
		defer late.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("after the end: %s", resp.Status)
		}
	})
}

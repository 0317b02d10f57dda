// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// largeDocument is longer than all buffers between server and client.
var largeDocument = `{"x":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}`

func largeOpenAPI(w *pipedReplica) {
	w.origins["one"].answers(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/openapi/v2" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, largeDocument)
		return true
	})
}

// A client that does not read is cut off, whatever it requested.
func TestServer_cutsStalledClients(t *testing.T) {
	inMemory(t, []string{"one"}, largeOpenAPI, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for _, path := range []string{
			"/healthz", "/readyz", "/clusters", "/nothing", "/fleet/api", "/fleet/nothing", "/clusters/none/api",
			"/clusters/one/apis", "/clusters/one/version",
			"/clusters/one/healthz", "/clusters/one/openapi/v2", "/clusters/one/api/v1/configmaps",
			"/clusters/one/api/v1/configmaps/none", "/clusters/one/api/v1/configmaps?watch=1",
			"/clusters/one/api/v1/configmaps?watershedRead=consistent",
		} {
			c := w.open(path)
			time.Sleep(w.server.opts.WriteTimeout + 5*time.Second)
			synctest.Wait()
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if text, err := readAnswer(c, path); err == nil {
				t.Errorf("%s is still being answered after %s: %.100s", path, w.server.opts.WriteTimeout+5*time.Second,
					text)
			} else if strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s: the connection is still open", path)
			}
			_ = c.Close()
		}
		if n := w.server.tracker.Len(); n > 0 {
			t.Errorf("%d responses are still watched", n)
		}
	})
}

// A client that reads slowly but steadily receives everything, however long that takes.
func TestServer_slowClientsGetEverything(t *testing.T) {
	inMemory(t, []string{"one"}, largeOpenAPI, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for name, write := range map[string]func(*respond.Response) error{
			"at once": func(p *respond.Response) error { _, err := io.WriteString(p, largeDocument); return err },
			"as a stream": func(p *respond.Response) error {
				_, err := io.Copy(p, strings.NewReader(largeDocument))
				return err
			},
			"with a flush": func(p *respond.Response) error {
				_, err := io.WriteString(p.Flushing(), largeDocument)
				return err
			},
		} {
			served := make(chan error, 1)
			network := newPipeListener()
			s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				p := w.server.tracker.Begin(rw)
				defer p.End()
				served <- write(p)
			})}
			go func() { _ = s.Serve(network) }()
			c, err := network.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			buf, n := make([]byte, respond.ProgressPiece/2), 0
			for {
				m, err := io.ReadFull(c, buf)
				if n += m; err != nil {
					break
				}
				time.Sleep(w.server.opts.WriteTimeout / 3)
			}
			if err := <-served; err != nil || n < len(largeDocument) {
				t.Errorf("%s: the client got %d of %d bytes: %v", name, n, len(largeDocument), err)
			}
			_ = c.Close()
			_ = s.Close()
		}
	})
}

// A connection serves the next request although its last response had a time limit.
func TestServer_connectionsOutliveTheirLimits(t *testing.T) {
	inMemory(t, []string{"one"}, largeOpenAPI, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		const path = "/clusters/one/openapi/v2"
		c := w.open(path)
		defer c.Close()
		for range 3 {
			if text, err := readAnswer(c, path); err != nil || text != largeDocument {
				t.Fatalf("%d bytes: %v", len(text), err)
			}
			time.Sleep(2 * w.server.opts.WriteTimeout)
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: replica\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
		}
	})
}

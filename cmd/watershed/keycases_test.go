// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/internal/expect"
)

// keyClusters are the clusters of TestKeys_haveAnEffect, and its cases.
type keyClusters struct {
	t      *testing.T
	eu, us *origin
	// kubeconfig has both, and onlyEU and onlyUS one each.
	kubeconfig, onlyEU, onlyUS string
}

func newKeyClusters(t *testing.T) *keyClusters {
	t.Helper()
	origins := startOrigins(t, 2, 40)
	w := &keyClusters{t: t, eu: origins[0], us: origins[1]}
	w.kubeconfig = kubeconfigOf(t, map[string]*origin{"eu": w.eu, "us": w.us}, "us")
	w.onlyEU = kubeconfigOf(t, map[string]*origin{"eu": w.eu}, "eu")
	w.onlyUS = kubeconfigOf(t, map[string]*origin{"us": w.us}, "us")
	t.Setenv("KUBECONFIG", w.kubeconfig)
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	return w
}

// one returns the settings for the cluster eu and these, in pairs.
func (w *keyClusters) one(pairs ...any) map[string]any {
	all := map[string]any{"sources.contexts": []string{"eu"}, "mirror.resources": []string{"pods", "namespaces"}}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i].(string)] = pairs[i+1]
	}
	return all
}

// options returns the settings of the file.
func (c *configured) options() *settings.Settings {
	o := settings.New()
	o.File = c.path
	expect.NoError(c.t, o.Load())
	return o
}

// flagNames returns the names of the flags of a command.
func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// certificate returns the certificate that the server presents.
func (c *configured) certificate() *x509.Certificate {
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.url(""), "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return &x509.Certificate{}
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// accepted returns how many of three connections the server accepts at once. Each has a request
// of the owner, because connections without an authenticated caller make room for others.
func (c *configured) accepted() string {
	n := 0
	for range 3 {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url("/clusters"), http.NoBody)
		expect.NoError(c.t, err)
		r.Header.Set("Authorization", "Bearer "+c.owner())
		resp, err := transport.RoundTrip(r)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection stays open
		resp.Body.Close()
		n++
	}
	return fmt.Sprint(n)
}

// writePair writes certificates with two names for one key, and another key.
func writePair(t *testing.T) (certs [2]string, key, other string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	newKey := func(name string) (*ecdsa.PrivateKey, string) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		expect.NoError(t, err)
		der, err := x509.MarshalPKCS8PrivateKey(k)
		expect.NoError(t, err)
		return k, write(name, "PRIVATE KEY", der)
	}
	k, key := newKey("key.pem")
	_, other = newKey("other.pem")
	for i := range certs {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprint("cert-", i)},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
		expect.NoError(t, err)
		certs[i] = write(fmt.Sprintf("cert-%d.pem", i), "CERTIFICATE", der)
	}
	return certs, key, other
}

// serving has the cases of the server's own keys.
func (w *keyClusters) serving() map[string]keyCase {
	certs, key, other := writePair(w.t)
	folders := [2]string{w.t.TempDir(), w.t.TempDir()}
	name := func(c *configured) string { return c.certificate().Subject.CommonName }
	host := func(c *configured) string {
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(c.url(""), "https://"))
		return host
	}
	return map[string]keyCase{
		"listen": {
			with:    w.one(),
			from:    "127.0.0.1:0",
			to:      "127.0.0.2:0",
			observe: host,
			want:    [2]string{"127.0.0.1", "127.0.0.2"},
		},
		"stateDir": {with: w.one(), from: folders[0], to: folders[1], want: [2]string{"true false", "false true"},
			observe: func(*configured) string {
				var found []any
				for _, dir := range folders {
					_, err := os.Stat(filepath.Join(dir, "server.json"))
					found = append(found, err == nil)
				}
				return strings.TrimSpace(fmt.Sprintln(found...))
			}},
		"tls.certFile": {
			with:    w.one("tls.keyFile", key),
			from:    certs[0],
			to:      certs[1],
			observe: name,
			want:    [2]string{"cert-0", "cert-1"},
		},
		"tls.keyFile": {run: func(t *testing.T) {
			c := configure(t, w.one("tls.certFile", certs[0], "tls.keyFile", key))
			expect.Equal(t, name(c), "cert-0")
			err := launch(t, w.one("tls.certFile", certs[0], "tls.keyFile", other)).wait()
			if err == nil || !strings.Contains(err.Error(), other+" are not a pair") {
				t.Errorf("with another key: %v", err)
			}
		}},
		"tls.hosts": {with: w.one(), to: []string{"replica.example.com"}, want: [2]string{"false", "true"},
			observe: func(c *configured) string {
				return fmt.Sprint(slices.Contains(c.certificate().DNSNames, "replica.example.com"))
			}},
		"connections.max": {
			with: w.one(), from: 100, to: 2, observe: (*configured).accepted, want: [2]string{"3", "2"},
		},
		"connections.maxPerAddress": {
			with: w.one(), from: 1, to: 100, observe: (*configured).accepted, want: [2]string{"1", "3"},
		},
		"shutdown.delay": {run: func(t *testing.T) { testShutdownDelay(t, w) }},
		"shutdown.grace": {run: func(t *testing.T) { testShutdownGrace(t, w) }},
		"passThrough": {with: w.one(), from: false, to: true, want: [2]string{"405", "418"},
			observe: func(c *configured) string {
				code, _ := c.send(http.MethodPost, "/clusters/eu/api/v1/namespaces/x/pods", "ann", "{}")
				return fmt.Sprint(code)
			}},
		"pprof": {
			with:    w.one(),
			to:      "127.0.0.1:0",
			want:    [2]string{"none", "200"},
			observe: func(c *configured) string { return c.inside("profiles") },
		},
		"metricsListen": {
			with:    w.one(),
			to:      "127.0.0.1:0",
			want:    [2]string{"none", "200"},
			observe: func(c *configured) string { return c.inside("metrics") },
		},
		"logFormat": {with: w.one(), to: "json", want: [2]string{"level=INFO", `{"time":`},
			observe: func(c *configured) string {
				line := c.log.String()
				if strings.HasPrefix(line, `{"time":`) {
					return `{"time":`
				}
				return strings.Fields(line + " - -")[1]
			}},
	}
}

// inside returns the response of a server whose address the log has, "none" without one.
func (c *configured) inside(name string) string {
	_, after, ok := strings.Cut(c.log.String(), "msg="+name+" url=")
	if !ok {
		return "none"
	}
	address, _, _ := strings.Cut(after, "\n")
	response, err := http.Get(address)
	if err != nil {
		return err.Error()
	}
	response.Body.Close()
	return fmt.Sprint(response.StatusCode)
}

// awaitReload waits until a key is in effect.
func (c *configured) awaitReload(key string) {
	c.t.Helper()
	expect.Eventually(c.t, 10*time.Second, func() error {
		if !strings.Contains(c.log.String(), `msg="configuration reloaded"`) || !strings.Contains(c.log.String(), key) {
			return fmt.Errorf("%s was not reloaded:\n%s", key, c.log)
		}
		return nil
	})
}

// testShutdownDelay checks that the server answers for a while after the signal to end.
func testShutdownDelay(t *testing.T, w *keyClusters) {
	c := configure(t, w.one())
	c.change(map[string]any{"shutdown.delay": "1s"})
	c.awaitReload("shutdown.delay")
	began := time.Now()
	c.cancel()
	expect.Soon(t, "readyz fails", func() bool {
		code, body := c.get("/readyz", "")
		return code == 500 && strings.Contains(body, "about to end")
	})
	expect.NoError(t, c.stopped())
	if took := time.Since(began); took < time.Second {
		t.Errorf("the server ended after %s", took)
	}
}

// testShutdownGrace checks how long a request may take when the server ends.
func testShutdownGrace(t *testing.T, w *keyClusters) {
	w.eu.held = make(chan struct{})
	defer func() { w.eu.held = nil }()
	c := configure(t, w.one("shutdown.grace", "1m"))
	c.change(map[string]any{"shutdown.grace": "300ms"})
	c.awaitReload("shutdown.grace")
	pod := w.eu.cluster.Pod(0)
	before := w.eu.asked("/pods/" + pod.Name)
	answered := make(chan string, 1)
	go func() {
		_, body := c.get("/clusters/eu/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"?watershedRead=consistent",
			c.owner())
		answered <- body
	}()
	expect.Soon(t, "the request is at the cluster", func() bool { return w.eu.asked("/pods/"+pod.Name) > before })
	began := time.Now()
	expect.NoError(t, c.stopped())
	if took := time.Since(began); took < 250*time.Millisecond || took > 30*time.Second {
		t.Errorf("the server ended after %s", took)
	}
	close(w.eu.held)
	<-answered
}

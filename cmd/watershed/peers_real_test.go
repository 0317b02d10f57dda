// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/peer"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// groupReplica is a replica of a group, and a user of it.
type groupReplica struct {
	*pastReader
	log   *output
	state *state.Dir
	stop  func() error
}

// startInGroup starts a replica of the cluster a, which it reaches at an address, as a member of a
// group.
func startInGroup(t *testing.T, c *kubetest.Cluster, address string, args ...string) *groupReplica {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	expect.NoError(t, err)
	config.Clusters["a"].Server = "https://" + address
	path := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	r := &groupReplica{state: &state.Dir{Path: t.TempDir()}}
	r.log, r.stop = startServe(t, r.state, append([]string{
		"--kubeconfig", path, "--context", "a", "--resources", "configmaps,namespaces", "--pass-through",
		"--replica-group", "pair", "--group-cluster", "a",
	}, args...)...)
	target, err := apiclient.LocalTarget(*r.state, "")
	expect.NoError(t, err)
	r.pastReader = readAs(t, target.URL+"/clusters/a", c.UserConfig("eve").BearerToken, target.Authority)
	return r
}

// send sends a request of the user, and returns the code, the texts of warnings, and the body.
func (r *groupReplica) send(method, path string, body any) (code int, warnings string, answer []byte) {
	r.t.Helper()
	text, err := json.Marshal(body)
	expect.NoError(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.root+path, strings.NewReader(string(text)))
	expect.NoError(r.t, err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := r.client.Do(req)
	expect.NoError(r.t, err)
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	expect.NoError(r.t, err)
	return resp.StatusCode, strings.Join(resp.Header.Values("Warning"), "; "), answer
}

// status returns what watershed status prints.
func (r *groupReplica) status() string {
	r.t.Helper()
	text, err := command(r.t.Context(), "status", "--state-dir", r.state.Path)
	if err != nil {
		return err.Error()
	}
	return text
}

// reads returns the value that the user reads in an object, by get and by list, and the warnings.
func (r *groupReplica) reads(name string) (got, listed, warnings string) {
	r.t.Helper()
	var one corev1.ConfigMap
	code, warnings, body := r.send(http.MethodGet, configmaps+"/"+name, nil)
	if code == http.StatusOK {
		expect.NoError(r.t, json.Unmarshal(body, &one))
		got = one.Data["n"]
	}
	var all corev1.ConfigMapList
	code, more, body := r.send(http.MethodGet, configmaps, nil)
	if code != http.StatusOK {
		r.t.Fatalf("%d %s", code, body)
	}
	expect.NoError(r.t, json.Unmarshal(body, &all))
	for i := range all.Items {
		if all.Items[i].Name == name {
			listed = all.Items[i].Data["n"]
		}
	}
	return got, listed, warnings + more
}

// configmaps is a path, and configMap the type of its objects.
const configmaps = "/api/v1/namespaces/default/configmaps"

var configMap = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}

// TestServe_groupReadsItsWrites writes through one replica of a group and reads through another, whose
// copy is 200 ms late: no read is from before a write that was acknowledged without a warning. While
// the one cannot reach the other, writes and reads have warnings.
func TestServe_groupReadsItsWrites(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{
		Name: "a", Users: []kubetest.User{{Name: "eve", Groups: []string{"system:masters"}}},
	})
	direct, err := url.Parse(c.Config().Host)
	expect.NoError(t, err)
	late := c.Proxy(t)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	network, err := kubetest.NewProxy(port.Addr().String())
	expect.NoError(t, err)
	t.Cleanup(network.Close)
	expect.NoError(t, port.Close())

	a := startInGroup(t, c, direct.Host, "--group-listen", "127.0.0.1:0")
	b := startInGroup(t, c, late.Addr(), "--group-listen", port.Addr().String(), "--group-address", network.Addr())
	connected := func() {
		t.Helper()
		expect.Eventually(t, time.Minute, func() error {
			for _, r := range []*groupReplica{a, b} {
				if text := r.status(); !strings.Contains(text, ": connected; 1 cluster") ||
					strings.Contains(text, "PeerUnreachable") {
					return fmt.Errorf("status is\n%s\nand the log\n%s", text, r.log)
				}
			}
			return nil
		})
	}
	connected()
	testPeerCertificate(t, b)
	testVerifyReplicas(t, a)

	late.Delay(200 * time.Millisecond)
	var n, acknowledged, fromCopy int
	expect.Eventually(t, 5*time.Minute, func() error {
		n++
		want := fmt.Sprint(n)
		method, path := http.MethodPatch, configmaps+"/one"
		if n == 1 {
			method, path = http.MethodPost, configmaps
		}
		code, warnings, body := a.send(method, path, corev1.ConfigMap{Data: map[string]string{"n": want},
			TypeMeta: configMap, ObjectMeta: metav1.ObjectMeta{Name: "one"}})
		if code >= http.StatusBadRequest {
			t.Fatalf("%d %s", code, body)
		}
		if warnings != "" {
			return fmt.Errorf("%d of 20 writes are acknowledged; the last one has the warning %s", acknowledged,
				warnings)
		}
		acknowledged++
		got, listed, more := b.reads("one")
		if got != want || listed != want {
			t.Errorf("after write %s, get returns %q and list %q, with warnings %q", want, got, listed, more)
		}
		if _, header, _ := b.get(configmaps, nil); header.Get("Watershed-Source") == "" {
			fromCopy++
		}
		if acknowledged < 20 {
			return fmt.Errorf("%d of 20 writes are acknowledged", acknowledged)
		}
		return nil
	})
	t.Logf("%d writes, %d of them acknowledged, %d lists from the copy", n, acknowledged, fromCopy)
	if fromCopy == 0 {
		t.Error("no list came from the copy, so nothing was tested")
	}
	code, _, _ := a.send(http.MethodDelete, configmaps+"/one", nil)
	expect.Equal(t, code, http.StatusOK)

	network.Down()
	expect.Soon(t, "a write has a warning", func() bool {
		code, warnings, body := a.send(http.MethodPost, configmaps, corev1.ConfigMap{
			TypeMeta: configMap, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("two-", n)},
		})
		if n++; code != http.StatusCreated {
			t.Fatalf("%d %s", code, body)
		}
		return strings.Contains(warnings, "did not confirm")
	})
	expect.Soon(t, "a read has a warning", func() bool {
		_, _, warnings := b.reads("two")
		return strings.Contains(warnings, "not connected to all others")
	})
	for _, r := range []*groupReplica{a, b} {
		expect.Soon(t, "the problem", func() bool { return strings.Contains(r.status(), "server: PeerUnreachable") })
	}
	expect.NoError(t, network.Up())
	connected()
	expect.Soon(t, "reads have no warning", func() bool {
		_, _, warnings := b.reads("two")
		return warnings == ""
	})
	expect.NoError(t, b.stop())
	expect.Soon(t, "the replica is alone", func() bool { return strings.Contains(a.status(), "no other replica") })
	expect.NoError(t, a.stop())
}

// testVerifyReplicas compares the copies of a replica with those of the other one, as its owner.
func testVerifyReplicas(t *testing.T, r *groupReplica) {
	t.Helper()
	equal := regexp.MustCompile(`(?m)^a +configmaps +\d+ +[1-9]\d* +\S+ +slot \d+: none$`)
	expect.Eventually(t, time.Minute, func() error {
		out, err := command(t.Context(), "verify", "--state-dir", r.state.Path, "--replicas")
		if err == nil && !equal.MatchString(out) {
			err = errors.New("no line of configmaps")
		}
		if err != nil {
			return fmt.Errorf("verify --replicas prints %w\n%s", err, out)
		}
		return nil
	})
	if _, err := command(t.Context(), "verify", "--state-dir", r.state.Path, "--replicas", "--repair"); err == nil ||
		!strings.Contains(err.Error(), "without deep and repair") {
		t.Errorf("verify --replicas --repair: %v", err)
	}
}

// testPeerCertificate sends a request with the certificate of a replica to the address of clients.
func testPeerCertificate(t *testing.T, r *groupReplica) {
	t.Helper()
	key, err := peer.NewKey()
	expect.NoError(t, err)
	own, err := key.Certificate("holder")
	expect.NoError(t, err)
	transport := r.client.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{own}
	defer transport.CloseIdleConnections()
	for _, path := range []string{configmaps, "/v1/note", "/v1/report", "/v1/versions"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.root+path, http.NoBody)
		expect.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		expect.NoError(t, err)
		resp.Body.Close()
		expect.Equal(t, resp.StatusCode, http.StatusUnauthorized)
	}
}

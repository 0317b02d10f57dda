// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
)

// openAuthority opens a state folder and its authority.
func openAuthority(t *testing.T, s *state) (ca *serving.Authority, created bool) {
	t.Helper()
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	ca, created, err := serving.OpenAuthority(s.authorityFile(), &serving.AuthorityOptions{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return ca, created
}

// newFront returns a server like that of serve.
func newFront(t *testing.T, l net.Listener, handler http.Handler, ca *serving.Authority) *serving.Server {
	t.Helper()
	front, err := serving.New(l, handler, &serving.Options{Certificates: ca, LongRunning: isWatch, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return front
}

// begin runs a service like serve, with another handler. It returns a function that ends
// it and waits.
func begin(t *testing.T, s *state, handler http.Handler) (address string, end func() error) {
	t.Helper()
	return beginAs(t, s, server{}, handler)
}

// beginAs is like begin, for a server that announces more than its address. Its list of
// clusters is for the owner only.
func beginAs(t *testing.T, s *state, announced server, handler http.Handler) (address string, end func() error) {
	t.Helper()
	ca, _ := openAuthority(t, s)
	handler = ownerOnly(ownerToken(t, s), handler)
	l, err := listenLoopback(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	announced.Address = l.Addr().String()
	withdraw, err := s.announce(announced)
	if err != nil {
		t.Fatal(err)
	}
	running := &service{servers: []func(context.Context) error{newFront(t, l, handler, ca).Run}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := running.run(ctx)
		withdraw()
		done <- err
	}()
	return l.Addr().String(), func() error {
		cancel()
		return <-done
	}
}

// ownerToken returns the owner's token of a state folder, and creates it if necessary.
func ownerToken(t *testing.T, s *state) string {
	t.Helper()
	err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.openOwner()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// ownerOnly refuses requests for the list of clusters without the owner's token.
func ownerOnly(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/clusters" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// clusters returns a handler that responds like the replica.
func clusters(names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/clusters" {
			http.NotFound(w, r)
			return
		}
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(`{"name":%q,"state":"Synced"}`, name))
		}
		fmt.Fprintf(w, `{"clusters":[%s]}`, strings.Join(all, ","))
	})
}

func TestKubeconfig_hasEveryCluster(t *testing.T) {
	for _, c := range []struct {
		names   []string
		current string
		servers map[string]string // paths by context
	}{
		{nil, "watershed-fleet", map[string]string{"watershed-fleet": "/fleet"}},
		{[]string{"only"}, "watershed-only", map[string]string{"watershed-fleet": "/fleet", "watershed-only": "/clusters/only"}},
		{
			[]string{"arn:aws:eks:eu-1:1:cluster%2Fprod", "fleet", "a b"}, "watershed-fleet",
			map[string]string{
				"watershed-fleet": "/fleet", "watershed-clusters/fleet": "/clusters/fleet", "watershed-a b": "/clusters/a%20b",
				"watershed-arn:aws:eks:eu-1:1:cluster%2Fprod": "/clusters/arn:aws:eks:eu-1:1:cluster%252Fprod",
			},
		},
	} {
		s := &state{dir: t.TempDir()}
		address, end := begin(t, s, clusters(c.names...))
		text, err := command(t.Context(), "kubeconfig", "--state-dir", s.dir)
		if err != nil {
			t.Fatal(err)
		}
		k, err := clientcmd.Load([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		servers := map[string]string{}
		for name, context := range k.Contexts {
			servers[name] = strings.TrimPrefix(k.Clusters[context.Cluster].Server, "https://"+address)
		}
		if diff := cmp.Diff(c.servers, servers); diff != "" || k.CurrentContext != c.current || len(k.AuthInfos) != 1 {
			t.Errorf("current context %q, %d users, and these, wanted (-) and printed (+):\n%s", k.CurrentContext, len(k.AuthInfos), diff)
		}
		if user := k.AuthInfos["watershed-owner"]; user == nil || user.Token != ownerToken(t, s) {
			t.Error("the contexts do not have the owner's token")
		}
		// The authority in the kubeconfig verifies the server.
		cfg, err := clientcmd.NewNonInteractiveClientConfig(*k, c.current, nil, nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get("https://" + address + "/clusters")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("the server speaks %s and answers %s", resp.Proto, resp.Status)
		}
		client.CloseIdleConnections()
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestKubeconfig_saysWhatIsMissing(t *testing.T) {
	s := &state{dir: t.TempDir()}
	ask := func(want string) {
		t.Helper()
		if out, err := command(t.Context(), "kubeconfig", "--state-dir", s.dir); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%q, %v, want something about %q", out, err, want)
		}
	}
	ask("no server is running")
	address, end := begin(t, s, http.NotFoundHandler())
	ask("404 Not Found")
	if err := os.Rename(s.authorityFile(), s.authorityFile()+".old"); err != nil {
		t.Fatal(err)
	}
	ask("no server is running")
	openAuthority(t, s)
	ask("certificate")
	if err := end(); err != nil {
		t.Error(err)
	}
	ask("no server is running") // the server has removed its address
	withdraw, err := s.announce(server{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	ask("does not answer")
	withdraw()
	if _, err := s.server(); !errors.Is(err, errNotServing) {
		t.Error(err)
	}
}

func TestKubeconfig_prefix(t *testing.T) {
	s := &state{dir: t.TempDir()}
	_, end := begin(t, s, clusters("eu", "us"))
	for prefix, want := range map[string]string{"": "name: eu\n", "replica/": "name: replica/eu\n"} {
		if text, err := command(t.Context(), "kubeconfig", "--state-dir", s.dir, "--prefix", prefix); err != nil || !strings.Contains(text, want) {
			t.Errorf("with prefix %q: %v, without %q:\n%s", prefix, err, want, text)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

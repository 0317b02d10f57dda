// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// begin runs a service for the time of the test, as serve would, with some other
// handler. It returns what ends it and waits.
func begin(t *testing.T, s *state, handler http.Handler) (address string, end func() error) {
	t.Helper()
	ca, _ := openState(t, s, time.Now)
	l, err := listenLoopback(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	remove, err := s.writeAddress(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	running := &service{endpoints: []endpoint{newEndpoint(l, handler, ca, quiet)}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := running.run(ctx)
		remove()
		done <- err
	}()
	return l.Addr().String(), func() error {
		cancel()
		return <-done
	}
}

// clusters answers as the replica does.
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
		{nil, "fleet", map[string]string{"fleet": "/fleet"}},
		{[]string{"only"}, "only", map[string]string{"fleet": "/fleet", "only": "/clusters/only"}},
		{
			[]string{"arn:aws:eks:eu-1:1:cluster%2Fprod", "fleet", "a b"}, "fleet",
			map[string]string{
				"fleet": "/fleet", "clusters/fleet": "/clusters/fleet", "a b": "/clusters/a%20b",
				"arn:aws:eks:eu-1:1:cluster%2Fprod": "/clusters/arn:aws:eks:eu-1:1:cluster%252Fprod",
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
		// The authority in it is the one that the server goes by.
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
		if resp.ProtoMajor != 2 {
			t.Errorf("the server speaks %s", resp.Proto)
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
	ask("no server runs")
	address, end := begin(t, s, http.NotFoundHandler())
	ask("404 Not Found")
	if err := os.Rename(s.authorityFile(), s.authorityFile()+".old"); err != nil {
		t.Fatal(err)
	}
	ask("no server runs")
	openState(t, s, time.Now)
	ask("certificate")
	if err := end(); err != nil {
		t.Error(err)
	}
	ask("no server runs") // it has taken its address back
	remove, err := s.writeAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	ask("does not answer")
	if _, err := s.writeAddress("127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	remove()
	if now, err := s.readAddress(); err != nil || now != "127.0.0.1:1" {
		t.Errorf("address is %q, %v, want that of the server that came later", now, err)
	}
	if err := os.Remove(s.addressFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.readAddress(); !errors.Is(err, errNotServing) {
		t.Error(err)
	}
}

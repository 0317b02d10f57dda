// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// run runs the command in this process, and returns both of its outputs.
func run(t *testing.T, args ...string) (out, trouble string, err error) {
	t.Helper()
	return commandtest.Run(t.Context(), NewCommand(), args...)
}

func TestKubeconfig_hasEveryCluster(t *testing.T) {
	for _, c := range []struct {
		names   []string
		current string
		servers map[string]string // paths by context
	}{
		{nil, "watershed-fleet", map[string]string{"watershed-fleet": "/fleet"}},
		{[]string{"only"}, "watershed-only", map[string]string{"watershed-fleet": "/fleet",
			"watershed-only": "/clusters/only"}},
		{
			[]string{"arn:aws:eks:eu-1:1:cluster%2Fprod", "fleet", "a b"}, "watershed-fleet",
			map[string]string{
				"watershed-fleet": "/fleet", "watershed-clusters/fleet": "/clusters/fleet",
				"watershed-a b": "/clusters/a%20b",
				"watershed-arn:aws:eks:eu-1:1:cluster%2Fprod": "/clusters/arn:aws:eks:eu-1:1:cluster%252Fprod",
			},
		},
	} {
		s := &state.Dir{Path: t.TempDir()}
		address, end := commandtest.Begin(t, s, commandtest.Clusters(c.names...))
		text, _, err := run(t, "--state-dir", s.Path)
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
			t.Errorf("current context %q, %d users, and these, wanted (-) and printed (+):\n%s", k.CurrentContext,
				len(k.AuthInfos), diff)
		}
		if user := k.AuthInfos["watershed-owner"]; user == nil || user.Token != commandtest.OwnerToken(t, s) {
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
	s := &state.Dir{Path: t.TempDir()}
	ask := func(want string) {
		t.Helper()
		if out, _, err := run(t, "--state-dir", s.Path); err == nil || !strings.Contains(err.Error(), want) ||
			out != "" {
			t.Errorf("%q, %v, want something about %q", out, err, want)
		}
	}
	ask("no server is running")
	address, end := commandtest.Begin(t, s, http.NotFoundHandler())
	ask("404 Not Found")
	if err := os.Rename(s.AuthorityFile(), s.AuthorityFile()+".old"); err != nil {
		t.Fatal(err)
	}
	ask("no server is running")
	commandtest.OpenAuthority(t, s)
	ask("certificate")
	if err := end(); err != nil {
		t.Error(err)
	}
	ask("no server is running") // the server has removed its address
	withdraw, err := s.Announce(state.Server{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	ask("does not answer")
	withdraw()
	if _, err := s.Server(); !errors.Is(err, state.ErrNotServing) {
		t.Error(err)
	}
}

func TestKubeconfig_prefix(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	_, end := commandtest.Begin(t, s, commandtest.Clusters("eu", "us"))
	for prefix, want := range map[string]string{"": "name: eu\n", "replica/": "name: replica/eu\n"} {
		if text, _, err := run(t, "--state-dir", s.Path, "--prefix", prefix); err != nil ||
			!strings.Contains(text, want) {
			t.Errorf("with prefix %q: %v, without %q:\n%s", prefix, err, want, text)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

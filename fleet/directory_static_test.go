// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

func TestStatic(t *testing.T) {
	var s fleet.Static
	told := dirFollow(t, &s)
	told.calm("nothing was set")
	dirMust(t, s.Set())
	told.names()
	cfg := &rest.Config{Host: "https://b"}
	dirMust(t, s.Set(fleet.Entry{Name: "b", Config: cfg}, fleet.Entry{Name: "a", Config: &rest.Config{Host: "https://a"}, Access: "mine"}))
	got := told.names("a", "b")
	if got["a"].Access != "mine" {
		t.Errorf("access %q", got["a"].Access)
	}
	cfg.Host, got["b"].Config.Host = "https://c", "https://d"
	if host := dirFollow(t, &s).names("a", "b")["b"].Config.Host; host != "https://b" {
		t.Errorf("another follower is told of %s", host)
	}
	dirMust(t, s.Set(fleet.Entry{Name: "b", Config: &rest.Config{Host: "https://b"}}, fleet.Entry{Name: "a", Config: &rest.Config{Host: "https://a"}, Access: "mine"}))
	told.calm("the same was set")
	for name, entries := range map[string][]fleet.Entry{
		"no name":   {{Config: cfg}},
		"slash":     {{Name: "a/b", Config: cfg}},
		"twice":     {{Name: "a", Config: cfg}, {Name: "a", Config: cfg}},
		"no config": {{Name: "a"}},
		"both":      {{Name: "a", Config: cfg, Err: errors.New("no")}},
	} {
		if err := s.Set(entries...); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := fleet.NewStatic(entries...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	told.calm("what was refused")
	dirMust(t, s.Set(fleet.Entry{Name: "a", Err: errors.New("no")}))
	told.until("an error", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil && len(m) == 1 })

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ended, func([]fleet.Entry) { t.Error("told after the end") }); err != nil {
		t.Error(err)
	}
}

// TestStatic_plugin has what [rest.CopyConfig] would share, and write to.
func TestStatic_plugin(t *testing.T) {
	s, err := fleet.NewStatic(fleet.Entry{Name: "a", Config: &rest.Config{
		Host: "https://a", ExecProvider: &clientcmdapi.ExecConfig{Command: "plugin", Config: &runtime.Unknown{Raw: []byte(`{}`)}},
	}})
	dirMust(t, err)
	one, two := dirFollow(t, s).names("a")["a"], dirFollow(t, s).names("a")["a"]
	if one.Config.ExecProvider == two.Config.ExecProvider || one.Config.ExecProvider.Config == two.Config.ExecProvider.Config {
		t.Error("two who are told share a plugin")
	}
}

// TestAccess changes everything that makes a difference, and something that makes
// none.
func TestAccess(t *testing.T) {
	access := func(change func(*rest.Config)) string {
		cfg := &rest.Config{Host: "https://a", BearerToken: "s3cr3t", ExecProvider: &clientcmdapi.ExecConfig{Command: "plugin"}}
		if change != nil {
			change(cfg)
		}
		s, err := fleet.NewStatic(fleet.Entry{Name: "a", Config: cfg})
		dirMust(t, err)
		return dirFollow(t, s).names("a")["a"].Access
	}
	plain := access(nil)
	if plain != access(func(c *rest.Config) { c.QPS, c.UserAgent = 17, "test" }) {
		t.Error("what makes no difference makes one")
	}
	seen := map[string]string{plain: "nothing"}
	for name, change := range map[string]func(*rest.Config){
		"host":        func(c *rest.Config) { c.Host = "https://b" },
		"path":        func(c *rest.Config) { c.APIPath = "/x" },
		"user":        func(c *rest.Config) { c.Username = "u" },
		"password":    func(c *rest.Config) { c.Password = "p" },
		"token":       func(c *rest.Config) { c.BearerToken = "t" },
		"token file":  func(c *rest.Config) { c.BearerTokenFile = "f" },
		"impersonate": func(c *rest.Config) { c.Impersonate.UserName = "u" },
		"extra":       func(c *rest.Config) { c.Impersonate.Extra = map[string][]string{"a": {"b"}} },
		"insecure":    func(c *rest.Config) { c.Insecure = true },
		"server name": func(c *rest.Config) { c.ServerName = "n" },
		"authority":   func(c *rest.Config) { c.CAData = []byte("x") },
		"certificate": func(c *rest.Config) { c.CertData = []byte("x") },
		"key":         func(c *rest.Config) { c.KeyData = []byte("x") },
		"command":     func(c *rest.Config) { c.ExecProvider.Command = "other" },
		"arguments":   func(c *rest.Config) { c.ExecProvider.Args = []string{"x"} },
		"variables":   func(c *rest.Config) { c.ExecProvider.Env = []clientcmdapi.ExecEnvVar{{Name: "a", Value: "b"}} },
		"variable":    func(c *rest.Config) { c.ExecProvider.Env = []clientcmdapi.ExecEnvVar{{Name: "a", Value: "c"}} },
		"input":       func(c *rest.Config) { c.ExecProvider.Config = &runtime.Unknown{Raw: []byte(`{"a":1}`)} },
		"other input": func(c *rest.Config) { c.ExecProvider.Config = &runtime.Unknown{Raw: []byte(`{"a":2}`)} },
		"provider": func(c *rest.Config) {
			c.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "p", Config: map[string]string{"a": "b"}}
		},
		"provider's": func(c *rest.Config) {
			c.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "p", Config: map[string]string{"a": "c"}}
		},
		"proxy":       func(c *rest.Config) { c.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "p"}) },
		"other proxy": func(c *rest.Config) { c.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "q"}) },
	} {
		got := access(change)
		if other, ok := seen[got]; ok {
			t.Errorf("%s makes no difference to %s", name, other)
		}
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("%s: access %s", name, got)
		}
		seen[got] = name
	}
}

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	ca, _ := dirCertificate(t)
	other, _ := dirCertificate(t)
	var log dirLog
	d := fleet.NewInCluster("here", &fleet.InClusterOptions{Interval: dirInterval, Logger: log.logger()})
	token := dirWrite(t, []byte("token"), dir, "token")
	fleet.LoadInCluster(d, func() (*rest.Config, error) {
		return &rest.Config{Host: "https://here", BearerToken: "token", BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: dir + "/ca.crt"}}, nil
	})
	told := dirFollow(t, d)
	told.calm("there is no authority")
	if n := strings.Count(log.String(), "cannot be reached"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	dirWrite(t, ca, dir, "ca.crt")
	was := told.names("here")["here"]
	if string(was.Config.CAData) != string(ca) || was.Config.BearerTokenFile != token {
		t.Errorf("configuration %v", was.Config)
	}
	dirWrite(t, []byte("another"), token)
	told.calm("client-go reads the token")
	dirWrite(t, nil, dir, "ca.crt")
	told.calm("the authority is being written")
	dirWrite(t, other, dir, "ca.crt")
	told.until("another authority", func(m map[string]fleet.Entry) bool { return string(m["here"].Config.CAData) == string(other) })

	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	ctx, cancel := context.WithTimeout(t.Context(), dirPatience)
	defer cancel()
	if err := fleet.NewInCluster("here", nil).Follow(ctx, nil); !errors.Is(err, rest.ErrNotInCluster) {
		t.Errorf("outside: %v", err)
	}
	if err := fleet.NewInCluster("a/b", nil).Follow(t.Context(), nil); err == nil {
		t.Error("a name with a slash")
	}
}

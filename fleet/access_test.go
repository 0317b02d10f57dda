// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

// TestAccess changes each field that is part of the digest, and some that are not.
func TestAccess(t *testing.T) {
	access := func(change func(*rest.Config)) string {
		cfg := &rest.Config{
			Host: "https://a", BearerToken: "s3cr3t", ExecProvider: &clientcmdapi.ExecConfig{Command: "plugin"},
		}
		if change != nil {
			change(cfg)
		}
		digest, err := fleet.Access(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	plain := access(nil)
	if plain != access(func(c *rest.Config) { c.QPS, c.UserAgent = 17, "test" }) {
		t.Error("fields that do not matter change the digest")
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
			t.Errorf("%s and %s have the same digest", name, other)
		}
		if strings.Contains(got, "s3cr3t") {
			t.Errorf("%s: the digest %s has the token in it", name, got)
		}
		seen[got] = name
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config returns the administrator's access, without a rate limit.
func (c *Cluster) Config() *rest.Config { return c.UserConfig(admin) }

// UserConfig returns the access of one of [Options.Users]. For any other name the API
// server responds with 401 Unauthorized.
func (c *Cluster) UserConfig(name string) *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		BearerToken:     c.token(name),
		TLSClientConfig: rest.TLSClientConfig{CAData: append([]byte(nil), c.keys.ca...)},
		QPS:             -1,
	}
}

// Kubeconfig returns the path of a kubeconfig for kubectl and others. Its current context
// is the administrator's and has the cluster's name. Every user has a context
// user@cluster.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// WriteKubeconfig writes one kubeconfig with the contexts of all clusters, which must
// have different names. The context of the first cluster is current.
func WriteKubeconfig(path string, clusters ...*Cluster) error {
	k := clientcmdapi.NewConfig()
	for _, c := range clusters {
		name := c.opts.Name
		if k.Clusters[name] != nil {
			return fmt.Errorf("kubeconfig %s: two clusters are named %s", path, name)
		}
		k.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.keys.ca}
		if k.CurrentContext == "" {
			k.CurrentContext = name
		}
		for _, u := range c.users() {
			id := u.Name + "@" + name
			context := id
			if u.Name == admin {
				context = name
			}
			k.AuthInfos[id] = &clientcmdapi.AuthInfo{Token: c.token(u.Name)}
			k.Contexts[context] = &clientcmdapi.Context{Cluster: name, AuthInfo: id}
		}
	}
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

// users returns all users that may log in, the administrator first.
func (c *Cluster) users() []User {
	return append([]User{{Name: admin, Groups: []string{"system:masters"}}}, c.opts.Users...)
}

// token derives a user's token from the cluster's secret. An unknown name also has a
// token, which the API server does not accept.
func (c *Cluster) token(user string) string {
	h := hmac.New(sha256.New, c.secret)
	h.Write([]byte(user))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (c *Cluster) tokenFile() string { return filepath.Join(c.dir, "tokens.csv") }

func (c *Cluster) writeTokens() error {
	c.secret = make([]byte, 32)
	if _, err := rand.Read(c.secret); err != nil {
		return err
	}
	var b strings.Builder
	w := csv.NewWriter(&b)
	for _, u := range c.users() {
		if err := w.Write([]string{c.token(u.Name), u.Name, "uid-" + u.Name, strings.Join(u.Groups, ",")}); err != nil {
			return err
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return os.WriteFile(c.tokenFile(), []byte(b.String()), 0o600)
}

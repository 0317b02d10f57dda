// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig reads a kubeconfig file. Relative paths in it are resolved against its
// directory.
func (r *fileStates) kubeconfig(path string) (*clientcmdapi.Config, error) {
	data, err := r.read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	k, err := parseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	r.contexts = r.contexts || contextsKey.Match(data)
	for _, cluster := range k.Clusters {
		cluster.LocationOfOrigin = path
	}
	for _, user := range k.AuthInfos {
		user.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(k); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return k, nil
}

// contextsKey matches the key of the contexts in YAML and JSON.
var contextsKey = regexp.MustCompile(`\bcontexts"?\s*:`)

var lineNumber = regexp.MustCompile(`\bline \d+`)

// parseKubeconfig parses a kubeconfig. Its error has the line and not the cause: the
// parser may quote a credential.
func parseKubeconfig(data []byte) (*clientcmdapi.Config, error) {
	k, err := clientcmd.Load(data)
	if err != nil {
		if line := lineNumber.FindString(err.Error()); line != "" {
			return nil, fmt.Errorf("it cannot be parsed at %s", line)
		}
		return nil, errors.New("it cannot be parsed")
	}
	return k, nil
}

// currentContext returns the current context of a kubeconfig, or the only one.
func currentContext(k *clientcmdapi.Config) (string, error) {
	if k.CurrentContext != "" {
		return k.CurrentContext, nil
	}
	if len(k.Contexts) != 1 {
		return "", fmt.Errorf("no current context, and %d contexts instead of one: set current-context",
			len(k.Contexts))
	}
	for name := range k.Contexts {
		return name, nil
	}
	return "", nil
}

// config returns the client configuration of a context. It reads the certificates that
// the context refers to, and records its token file.
func (r *fileStates) config(k *clientcmdapi.Config, context string) (*rest.Config, error) {
	c := k.Contexts[context]
	if c == nil {
		return nil, errors.New("the context does not exist")
	}
	// Without this check clientcmd would return an anonymous configuration.
	if c.AuthInfo != "" && k.AuthInfos[c.AuthInfo] == nil {
		return nil, fmt.Errorf("user %q does not exist", c.AuthInfo)
	}
	one := clientcmdapi.NewConfig()
	one.Contexts[context] = c
	if user := k.AuthInfos[c.AuthInfo]; user != nil {
		user = user.DeepCopy()
		if err := r.inlineUser(user); err != nil {
			return nil, err
		}
		one.AuthInfos[c.AuthInfo] = user
	}
	if cluster := k.Clusters[c.Cluster]; cluster != nil {
		cluster = cluster.DeepCopy()
		if err := r.inline(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData); err != nil {
			return nil, err
		}
		if err := checkAddresses(cluster); err != nil {
			return nil, err
		}
		one.Clusters[c.Cluster] = cluster
	}
	return clientcmd.NewNonInteractiveClientConfig(*one, context, nil, nil).ClientConfig()
}

// inlineUser replaces the paths of a user's certificate and key by the content of the
// files, and records the token file.
func (r *fileStates) inlineUser(user *clientcmdapi.AuthInfo) error {
	err := r.inline(&user.ClientCertificate, &user.ClientCertificateData)
	if err == nil {
		err = r.inline(&user.ClientKey, &user.ClientKeyData)
	}
	if err == nil && user.TokenFile != "" {
		r.note(user.TokenFile)
	}
	return err
}

// inline replaces a path by the content of the file, unless the content is set too.
func (r *fileStates) inline(path *string, data *[]byte) error {
	if *path == "" || len(*data) > 0 {
		return nil
	}
	content, err := r.read(*path)
	if err != nil {
		return err
	}
	*path, *data = "", content
	return nil
}

// checkAddresses returns an error for addresses that clientcmd would quote in its own
// error, including a password in them.
func checkAddresses(cluster *clientcmdapi.Cluster) error {
	if _, err := url.Parse(cluster.Server); err != nil {
		return errors.New("server address is not a valid URL")
	}
	if cluster.ProxyURL == "" {
		return nil
	}
	u, err := url.Parse(cluster.ProxyURL)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return errors.New("proxy address is not a valid http, https or socks5 URL")
	}
	return nil
}

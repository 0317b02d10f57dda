// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ContextsOptions tune [Contexts]. The zero value, and nil, are the defaults.
type ContextsOptions struct {
	// Paths are kubeconfig files. Of two that have something of the same name the
	// first one counts. Default: the files that the KUBECONFIG variable names, else
	// ~/.kube/config.
	Paths []string
	// Contexts are those that count. One that is not in the files is a cluster that
	// cannot be reached. Nil is all that are in the files; an empty list is an error of
	// Follow.
	Contexts []string
	// Interval is how often the files are looked at. Default 2 seconds.
	Interval time.Duration
	// Logger is told when the files cannot be read. Default: slog.Default().
	Logger *slog.Logger
}

// Contexts is a [Directory] of the contexts in kubeconfig files, as kubectl would
// read them: each one is a cluster. The fleet mirrors several that lead to one server
// once, see [Member.Aliases].
//
// A cluster has the name of its context, in which "/" is written "%2F" and "%" is
// written "%25", as in addresses, since the names of EKS and OpenShift contexts have
// slashes. So different contexts have different names. The one that has no name is
// "%".
//
// Files are looked at by their time, size and inode, and read again when they have
// been left alone for a moment: those that the kubeconfig refers to as well.
// Certificates and keys become part of [Entry.Config], so that a new one counts at
// once: client-go itself would look at the files every five minutes, and until then
// give the old one to every new client that names the same files. A token file is
// left to client-go, which reads it every minute, and so is a command that gets
// credentials, which is run as kubectl would run it.
//
// A file that is not there or empty has no contexts. While no file has anything,
// or one cannot be parsed, nothing is told.
type Contexts struct {
	opts ContextsOptions
}

// NewContexts returns the directory of the user's contexts. A nil opts means the
// defaults.
func NewContexts(opts *ContextsOptions) *Contexts {
	c := &Contexts{}
	if opts != nil {
		c.opts = *opts
	}
	if len(c.opts.Paths) == 0 {
		c.opts.Paths = clientcmd.NewDefaultClientConfigLoadingRules().Precedence
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	return c
}

// Follow tells the contexts. See [Directory].
func (c *Contexts) Follow(ctx context.Context, tell func([]Entry)) error {
	if !slices.ContainsFunc(c.opts.Paths, func(path string) bool { return path != "" }) {
		return errors.New("kubeconfig: no path")
	}
	if c.opts.Contexts != nil && len(c.opts.Contexts) == 0 {
		return errors.New("kubeconfig: list of contexts is empty")
	}
	told := teller{tell: tell}
	var trouble complaint
	var files tracked
	poll(ctx, c.opts.Interval, func() bool {
		read, soon := files.due()
		if !read {
			return soon
		}
		r := newReading()
		entries, err := c.read(r)
		files.done(r)
		failed := trouble.last != ""
		switch {
		case trouble.isNew(err):
			c.opts.Logger.Warn("cannot load kubeconfig: the clusters stay as they are", "err", err)
		case failed && err == nil:
			c.opts.Logger.Info("kubeconfig loaded again")
		}
		if err == nil {
			told.update(entries)
		}
		return false
	})
	return nil
}

// load reads the files and merges them.
func (c *Contexts) load(r *reading) (*clientcmdapi.Config, error) {
	all := clientcmdapi.NewConfig()
	found := false
	for _, path := range c.opts.Paths {
		if path == "" {
			continue
		}
		r.note(path)
		if info := r.files[path]; info != nil && info.Size() == 0 {
			continue
		}
		k, err := r.kubeconfig(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		addMissing(all.Clusters, k.Clusters)
		addMissing(all.AuthInfos, k.AuthInfos)
		addMissing(all.Contexts, k.Contexts)
	}
	if !found {
		return nil, noContexts(c.Paths())
	}
	return all, nil
}

// names returns the contexts that count, sorted.
func (c *Contexts) names(all *clientcmdapi.Config) []string {
	names := c.opts.Contexts
	if names == nil {
		names = slices.Collect(maps.Keys(all.Contexts))
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func (c *Contexts) read(r *reading) ([]Entry, error) {
	all, err := c.load(r)
	if err != nil {
		return nil, err
	}
	names := c.names(all)
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		cfg, err := r.config(all, name)
		e := entryOf(contextCluster(name), cfg, err)
		if e.Err != nil {
			e.Err = fmt.Errorf("kubeconfig context %q: %w", name, e.Err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func addMissing[V any](to, from map[string]V) {
	for name, v := range from {
		if _, ok := to[name]; !ok {
			to[name] = v
		}
	}
}

// contextCluster is the name of a context's cluster.
func contextCluster(context string) string {
	if context == "" {
		return "%"
	}
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(context)
}

// kubeconfig reads a file. Paths in it become absolute, as seen from its folder.
func (r *reading) kubeconfig(path string) (*clientcmdapi.Config, error) {
	data, err := r.read(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	k, err := parseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
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

var lineNumber = regexp.MustCompile(`\bline \d+`)

// parseKubeconfig says no more of what is wrong than where: an error of a parser may
// quote what it could not parse.
func parseKubeconfig(data []byte) (*clientcmdapi.Config, error) {
	k, err := clientcmd.Load(data)
	if err != nil {
		if where := lineNumber.FindString(err.Error()); where != "" {
			return nil, fmt.Errorf("it cannot be parsed at %s", where)
		}
		return nil, errors.New("it cannot be parsed")
	}
	return k, nil
}

// currentContext is the one that a kubeconfig is for.
func currentContext(k *clientcmdapi.Config) (string, error) {
	if k.CurrentContext != "" {
		return k.CurrentContext, nil
	}
	if len(k.Contexts) != 1 {
		return "", fmt.Errorf("it has no current context, and %d contexts", len(k.Contexts))
	}
	for name := range k.Contexts {
		return name, nil
	}
	return "", nil
}

// config is a context's. The certificates that it refers to are read, and its token
// file is noted.
func (r *reading) config(k *clientcmdapi.Config, context string) (*rest.Config, error) {
	c := k.Contexts[context]
	if c == nil {
		return nil, errors.New("there is no such context")
	}
	// clientcmd would go on as nobody.
	if c.AuthInfo != "" && k.AuthInfos[c.AuthInfo] == nil {
		return nil, fmt.Errorf("there is no user %q", c.AuthInfo)
	}
	one := clientcmdapi.NewConfig()
	one.Contexts[context] = c
	if user := k.AuthInfos[c.AuthInfo]; user != nil {
		user = user.DeepCopy()
		if err := r.inline(&user.ClientCertificate, &user.ClientCertificateData); err != nil {
			return nil, err
		}
		if err := r.inline(&user.ClientKey, &user.ClientKeyData); err != nil {
			return nil, err
		}
		if user.TokenFile != "" {
			r.note(user.TokenFile)
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

// inline reads a file in place of its path, unless its content is given as well.
func (r *reading) inline(path *string, data *[]byte) error {
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

// checkAddresses finds addresses that clientcmd would quote, passwords and all.
func checkAddresses(cluster *clientcmdapi.Cluster) error {
	if _, err := url.Parse(cluster.Server); err != nil {
		return errors.New("address of the server makes no sense")
	}
	if cluster.ProxyURL == "" {
		return nil
	}
	u, err := url.Parse(cluster.ProxyURL)
	if err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return errors.New("address of the proxy makes no sense")
	}
	return nil
}

// secretConfig is what a kubeconfig that came from a hub leads to. It must have all
// in itself: who may write it is not to run commands here, nor to have files of this
// machine sent to a server of their choice.
func secretConfig(data []byte) (*rest.Config, error) {
	if len(data) == 0 {
		return nil, errors.New("there is no kubeconfig")
	}
	k, err := parseKubeconfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	context, err := currentContext(k)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if c := k.Contexts[context]; c != nil {
		if user := k.AuthInfos[c.AuthInfo]; user != nil {
			switch {
			case user.Exec != nil || user.AuthProvider != nil:
				return nil, errors.New("kubeconfig: credentials that a command gets are not accepted from a hub")
			case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
				return nil, errors.New("kubeconfig: credentials in files are not accepted from a hub")
			}
		}
		if cluster := k.Clusters[c.Cluster]; cluster != nil && cluster.CertificateAuthority != "" {
			return nil, errors.New("kubeconfig: a certificate authority in a file is not accepted from a hub")
		}
	}
	cfg, err := newReading().config(k, context)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig context %q: %w", context, err)
	}
	return cfg, nil
}

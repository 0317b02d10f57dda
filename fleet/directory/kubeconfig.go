// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

// KubeconfigOptions tune [Kubeconfig]. The zero value, and nil, are the defaults.
type KubeconfigOptions struct {
	// Paths are kubeconfig files. If two files have a context, cluster or user of the
	// same name, the first file is used. Default: the files in the KUBECONFIG variable,
	// else ~/.kube/config.
	Paths []string
	// Contexts are the contexts to use. A context that the files do not have is a
	// cluster with an error. Nil means all contexts in the files. An empty list is an
	// error of Follow.
	Contexts []string
	// Logger receives a line when the files cannot be read. Default: slog.Default().
	Logger *slog.Logger
}

// Kubeconfig is a [fleet.Directory] of the contexts in kubeconfig files, which it reads
// and merges as kubectl does. Each context is a cluster. The fleet mirrors contexts of
// the same server once, see [fleet.Member.Aliases].
//
// The name of a cluster is the name of its context, with "/" written as "%2F" and "%"
// as "%25": contexts of EKS and OpenShift have slashes. What else [fleet.ValidateName] does not
// accept is written in the same way: "." and "..", control characters and bytes that are not
// UTF-8. Different contexts have different names. The context with the empty name is the cluster
// "%". A context whose name is too long is left out, and logged.
//
// The files are polled every 2 seconds. They are read again when their time, size or
// inode has changed and they have settled. The same holds for the certificates and
// keys that the kubeconfig refers to. Their content becomes part of
// [fleet.Entry.Config], so that a change has an effect at once: client-go would check
// those files every five minutes. Token files are left to client-go, which reads them
// every minute, and so are credential plugins.
//
// A missing or empty file has no contexts. While all files are missing or empty, or one
// cannot be parsed, or none has the key contexts, the clusters stay as they are: a program that
// does not rename files may be writing one.
type Kubeconfig struct {
	opts   KubeconfigOptions
	poller poller
}

// NewKubeconfig returns the directory of the contexts in kubeconfig files. A nil opts
// means the defaults.
func NewKubeconfig(opts *KubeconfigOptions) *Kubeconfig {
	k := &Kubeconfig{}
	if opts != nil {
		k.opts = *opts
	}
	if len(k.opts.Paths) == 0 {
		k.opts.Paths = clientcmd.NewDefaultClientConfigLoadingRules().Precedence
	}
	k.poller = newPoller(k.opts.Logger, k.String())
	return k
}

// String returns a short name of the directory for log lines and errors.
func (k *Kubeconfig) String() string { return "kubeconfig " + strings.Join(k.Paths(), ", ") }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (k *Kubeconfig) Err() error { return k.poller.last.Err() }

// Follow reports the contexts. See [fleet.Directory].
func (k *Kubeconfig) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	if len(k.Paths()) == 0 {
		return errNoKubeconfigPath
	}
	if k.opts.Contexts != nil && len(k.opts.Contexts) == 0 {
		return errors.New("kubeconfig: list of contexts is empty")
	}
	poller := k.poller
	poller.follow(ctx, k.read, notify)
	return nil
}

// Paths returns the kubeconfig files that are read, including those that do not exist.
func (k *Kubeconfig) Paths() []string {
	return slices.DeleteFunc(slices.Clone(k.opts.Paths), func(path string) bool { return path == "" })
}

// read returns the entries of all contexts.
func (k *Kubeconfig) read(r *fileStates) ([]fleet.Entry, error) {
	merged, err := k.load(r)
	if err != nil {
		return nil, err
	}
	names := k.names(merged)
	entries := make([]fleet.Entry, 0, len(names))
	for _, name := range names {
		cfg, err := r.config(merged, name)
		labels, invalid := kubeconfigLabels(merged, name)
		if err := fleet.ValidateName(contextCluster(name)); err != nil {
			k.poller.logger.Warn("context left out", "source", k.String(), "err", err)
			continue
		}
		e := labelled(newEntry(contextCluster(name), cfg, err), labels, invalid)
		if e.Err != nil {
			e.Err = fmt.Errorf("kubeconfig context %q: %w", name, e.Err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// load reads the files and merges them.
func (k *Kubeconfig) load(r *fileStates) (*clientcmdapi.Config, error) {
	merged := clientcmdapi.NewConfig()
	found := false
	for _, path := range k.Paths() {
		r.note(path)
		if info := r.files[path]; info != nil && info.Size() == 0 {
			continue
		}
		one, err := r.kubeconfig(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = true
		addMissing(merged.Clusters, one.Clusters)
		addMissing(merged.AuthInfos, one.AuthInfos)
		addMissing(merged.Contexts, one.Contexts)
	}
	switch {
	case !found:
		return nil, emptyKubeconfig(k.Paths())
	case !r.contexts:
		return nil, fmt.Errorf("kubeconfig %s has no key contexts: it is not complete", strings.Join(k.Paths(), ", "))
	}
	return merged, nil
}

// names returns the names of the contexts to use, sorted.
func (k *Kubeconfig) names(merged *clientcmdapi.Config) []string {
	names := k.opts.Contexts
	if names == nil {
		names = slices.Collect(maps.Keys(merged.Contexts))
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func addMissing[V any](to, from map[string]V) {
	for name, v := range from {
		if _, ok := to[name]; !ok {
			to[name] = v
		}
	}
}

// contextCluster returns the name of the cluster of a context.
func contextCluster(context string) string {
	if context == "" {
		return "%"
	}
	if context == "." || context == ".." {
		return strings.ReplaceAll(context, ".", "%2E")
	}
	var b strings.Builder
	for len(context) > 0 {
		r, size := utf8.DecodeRuneInString(context)
		if r == '%' || r == '/' || r == utf8.RuneError && size == 1 || !unicode.IsGraphic(r) {
			for _, c := range []byte(context[:size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(context[:size])
		}
		context = context[size:]
	}
	return b.String()
}

var errNoKubeconfigPath = errors.New("kubeconfig: no path")

// emptyKubeconfig returns the error for files that are all missing or empty.
func emptyKubeconfig(paths []string) error {
	switch len(paths) {
	case 0:
		return errNoKubeconfigPath
	case 1:
		return fmt.Errorf("kubeconfig %s does not exist or is empty", paths[0])
	}
	return fmt.Errorf("kubeconfig: all of the files %q are missing or empty", paths)
}

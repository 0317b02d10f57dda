// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// FromContext returns the cluster of a context in the user's kubeconfig: the files in the
// KUBECONFIG variable, or else ~/.kube/config. "" means the current context or, if there
// is no kubeconfig and the program runs in a pod, the cluster that it runs in. The
// cluster has the name of the context.
func FromContext(context string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if context != "" {
		return fromRules(rules, context)
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig, current context %q: %w", raw.CurrentContext, err)
	}
	return FromConfig(cfg, &Options{Name: raw.CurrentContext})
}

// FromKubeconfig returns the cluster of a context in one kubeconfig file. "" means the
// file's current context. The cluster has the name of the context.
func FromKubeconfig(path, context string) (*Cluster, error) {
	if path == "" {
		return nil, errors.New("kubeconfig: no path")
	}
	c, err := fromRules(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, context)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// fromRules returns the cluster of a context, using only the kubeconfig files.
func fromRules(rules *clientcmd.ClientConfigLoadingRules, context string) (*Cluster, error) {
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if raw.Contexts[context] == nil {
		return nil, fmt.Errorf("kubeconfig: there is no context %q", context)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, context, nil, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig context %q: %w", context, err)
	}
	return FromConfig(cfg, &Options{Name: context})
}

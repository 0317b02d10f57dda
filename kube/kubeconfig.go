// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

// FromContext is the cluster of a context in the user's kubeconfig: the files that
// the KUBECONFIG variable names, else ~/.kube/config. "" is the current context
// or, if there is no kubeconfig and the program runs in a pod, the cluster that
// it runs in. The cluster has the name of the context.
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

// FromKubeconfig is the cluster of a context in one kubeconfig file. "" is the
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

// fromRules takes a context of the files alone.
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

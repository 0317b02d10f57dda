// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

// LabelsExtension is the name of the kubeconfig extension with the labels of a cluster. A
// cluster and a context can have it; the labels of the context have precedence:
//
//	clusters:
//	- name: prod-eu
//	  cluster:
//	    server: https://eu.example.com
//	    extensions:
//	    - name: watershed.dev/labels
//	      extension: {env: prod, region: eu}
const LabelsExtension = "watershed.dev/labels"

// kubeconfigLabels returns the labels of a context of a kubeconfig.
func kubeconfigLabels(k *clientcmdapi.Config, context string) (map[string]string, error) {
	c := k.Contexts[context]
	if c == nil {
		return nil, nil
	}
	var all map[string]string
	if cluster := k.Clusters[c.Cluster]; cluster != nil {
		labels, err := extensionLabels(cluster.Extensions)
		if err != nil {
			return nil, fmt.Errorf("cluster %q: %w", c.Cluster, err)
		}
		all = labels
	}
	labels, err := extensionLabels(c.Extensions)
	if err != nil {
		return nil, err
	}
	return joinLabels(all, labels), nil
}

// extensionLabels returns the labels in extensions.
func extensionLabels(extensions map[string]runtime.Object) (map[string]string, error) {
	raw, ok := extensions[LabelsExtension].(*runtime.Unknown)
	if !ok {
		return nil, nil
	}
	labels := map[string]string{}
	if err := json.Unmarshal(raw.Raw, &labels); err != nil {
		return nil, fmt.Errorf("extension %s: want a map of strings", LabelsExtension)
	}
	for key, value := range labels {
		if reasons := append(validation.IsQualifiedName(key),
			validation.IsValidLabelValue(value)...); len(reasons) > 0 {
			return nil, fmt.Errorf("extension %s: label %q=%q: %s", LabelsExtension, key, value,
				strings.Join(reasons, "; "))
		}
	}
	return labels, nil
}

// joinLabels returns the labels of both maps. The second has precedence.
func joinLabels(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// labelled adds labels to an entry, or the error about them.
func labelled(e fleet.Entry, labels map[string]string, err error) fleet.Entry {
	if err != nil && e.Err == nil {
		return fleet.Entry{Name: e.Name, Err: err}
	}
	e.Labels = labels
	return e
}

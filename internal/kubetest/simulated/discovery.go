// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"
	"net/http"
	"strconv"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var serverVersion = version.Info{
	Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37",
	GitVersion: "v1.37.1+simulated", BuildDate: "1970-01-01T00:00:00Z", Compiler: "gc",
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover sends the aggregated document, if the client accepts that, or the other.
func (c *Cluster) discover(
	w http.ResponseWriter, r *http.Request, aggregated *apidiscoveryv2.APIGroupDiscoveryList, other any,
) error {
	c.stats.discoveries.Add(1)
	if r.Method != http.MethodGet {
		return noMethod()
	}
	m, ok := negotiate(r.Header.Get("Accept"), func(m media) bool {
		whole := aggregated != nil && m.as == "APIGroupDiscoveryList" && m.group == apidiscoveryv2.GroupName &&
			m.version == "v2"
		return m.encoding == jsonEncoding && (m.as == "" || whole)
	})
	switch {
	case !ok:
		return notAcceptable("only the following media types are accepted: application/json")
	case m.as != "":
		w.Header().Set("Cache-Control", "public")
		w.Header().Set("Vary", "Accept")
		c.document(w, aggregatedType, aggregated)
	default:
		c.document(w, runtime.ContentTypeJSON, other)
	}
	return nil
}

func (c *Cluster) discoverCore(w http.ResponseWriter, r *http.Request) error {
	return c.discover(w, r, c.catalogue.core, &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: c.Addr()},
		},
	})
}

func (c *Cluster) discoverGroups(w http.ResponseWriter, r *http.Request) error {
	return c.discover(w, r, c.catalogue.named, &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   c.catalogue.groups,
	})
}

func (c *Cluster) discoverGroup(w http.ResponseWriter, r *http.Request, group *metav1.APIGroup) error {
	g := *group
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return c.discover(w, r, nil, &g)
}

func (c *Cluster) discoverVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) error {
	return c.discover(w, r, nil, c.catalogue.versions[gv])
}

// firstVersion is the start of versions: all have ten digits.
const firstVersion = 1_000_000_000

// formatVersion returns the resourceVersion of a version.
func formatVersion(v uint32) string { return strconv.FormatUint(firstVersion+uint64(v), 10) }

// parseVersion parses a resourceVersion; "" is 0.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: Invalid value: %q: %w", s, err)
	}
	return int64(v), nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

import (
	"encoding/pem"
	"slices"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestTarget_owns(t *testing.T) {
	certificate := func(content string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)})
	}
	remote := &Target{URL: "https://Replica.example/base", Authority: certificate("corporate")}
	local := &Target{URL: "https://127.0.0.1:7443", Authority: slices.Concat(certificate("own"), certificate("next")),
		private: true}
	for _, c := range []struct {
		t       *Target
		cluster clientcmdapi.Cluster
		want    bool
	}{
		{remote, clientcmdapi.Cluster{Server: "https://replica.example:443/base/fleet"}, true},
		{remote, clientcmdapi.Cluster{Server: "https://replica.example/base/clusters/a%2Fb"}, true},
		{remote, clientcmdapi.Cluster{Server: "https://replica.example/fleet"}, false},
		{remote, clientcmdapi.Cluster{Server: "https://replica.example/basement/fleet"}, false},
		{remote, clientcmdapi.Cluster{Server: "https://replica.example/base/fleet/x"}, false},
		{remote, clientcmdapi.Cluster{Server: "http://replica.example:443/base/fleet"}, false},
		{remote, clientcmdapi.Cluster{Server: "https://a.example", CertificateAuthorityData: certificate("corporate")},
			false},
		{remote, clientcmdapi.Cluster{Server: "https://a.example:port"}, false},
		{local, clientcmdapi.Cluster{Server: "https://127.0.0.1:9/fleet", CertificateAuthorityData: certificate("own")},
			true},
		{local, clientcmdapi.Cluster{Server: "https://127.0.0.1:9/fleet",
			CertificateAuthorityData: certificate("corporate")}, false},
		{local, clientcmdapi.Cluster{Server: "https://127.0.0.1:9/fleet"}, false},
	} {
		if got := c.t.Owns(&c.cluster); got != c.want {
			t.Errorf("%s owns %s: %v", c.t.URL, c.cluster.Server, got)
		}
	}
	if remote.Owns(nil) {
		t.Error("it owns a cluster that does not exist")
	}
}

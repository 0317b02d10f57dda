// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// fleetContext is the context of all clusters together.
	fleetContext = "fleet"
	// nobody is the user of all contexts. The token is no secret, and nobody looks at
	// it: kubectl asks for a name and a password where it finds no credentials.
	nobody      = "watershed"
	nobodyToken = "none"
)

// maxClusters bounds what is read of a server's list of clusters, in bytes.
const maxClusters = 16 << 20

func newKubeconfigCommand() *cobra.Command {
	var s state
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for the server that runs",
		Long: `Kubeconfig prints a kubeconfig with a context for each cluster that watershed serve
mirrors, with the cluster's name, and one for all of them together, which is called
fleet. The token in it is not a secret: the server asks for none.`,
		Example: `  watershed kubeconfig > replica.yaml
  kubectl --kubeconfig replica.yaml --context prod-eu get pods -A`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printKubeconfig(cmd.Context(), cmd.OutOrStdout(), s)
		},
	}
	stateFlag(cmd, &s)
	return cmd
}

// printKubeconfig writes the kubeconfig of the server whose state it is given.
func printKubeconfig(ctx context.Context, out io.Writer, s state) error {
	if err := s.find(); err != nil {
		return err
	}
	address, err := s.readAddress()
	if err != nil {
		return err
	}
	ca, err := readAuthority(s.authorityFile(), time.Now)
	if errors.Is(err, os.ErrNotExist) {
		return errNotServing
	}
	if err != nil {
		return err
	}
	names, err := clusterNames(ctx, address, ca)
	if err != nil {
		return err
	}
	text, err := clientcmd.Write(*newKubeconfig(address, ca.pem, names))
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// clusterNames asks the server which clusters there are.
func clusterNames(ctx context.Context, address string, ca *authority) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.certificate)
	// Not by way of a proxy: the server is on this machine.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/clusters", nil)
	if err != nil {
		return nil, fmt.Errorf("server at %s: %w", address, err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("server at %s does not answer: is watershed serve running? %w", address, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("server at %s: list clusters: %s", address, resp.Status)
	}
	var answer struct {
		Clusters []struct {
			Name string `json:"name"`
		} `json:"clusters"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClusters)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("server at %s: list clusters: %w", address, err)
	}
	names := make([]string, 0, len(answer.Clusters))
	for _, c := range answer.Clusters {
		names = append(names, c.Name)
	}
	return names, nil
}

// newKubeconfig has the clusters of these names, and the fleet, which is current
// unless it is one cluster.
func newKubeconfig(address string, ca []byte, names []string) *clientcmdapi.Config {
	k := clientcmdapi.NewConfig()
	add := func(context, path string) {
		k.Clusters[context] = &clientcmdapi.Cluster{Server: "https://" + address + path, CertificateAuthorityData: ca}
		k.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: nobody}
	}
	k.AuthInfos[nobody] = &clientcmdapi.AuthInfo{Token: nobodyToken}
	add(fleetContext, "/fleet")
	k.CurrentContext = fleetContext
	for _, name := range names {
		context := name
		if name == fleetContext {
			context = "clusters/" + name
		}
		add(context, "/clusters/"+url.PathEscape(name))
		if len(names) == 1 {
			k.CurrentContext = context
		}
	}
	return k
}

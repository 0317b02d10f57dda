// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"cmp"
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

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/fleet/directory"
)

const (
	// fleetContext is the context of all clusters together.
	fleetContext = "fleet"
	// userName is the user of all contexts.
	userName = "watershed"
	// userToken is not a secret, and the server ignores it. Without a token kubectl
	// would ask for a name and a password.
	userToken = "none"
)

// maxClusters limits, in bytes, how much of a server's list of clusters is read.
const maxClusters = 16 << 20

// defaultPrefix is the default prefix of the names of contexts. Without a prefix they
// would have the names of the user's own contexts, and one would silently hide the other
// where kubeconfigs are merged.
const defaultPrefix = "watershed-"

func newKubeconfigCommand() *cobra.Command {
	var s state
	prefix := defaultPrefix
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for the running server",
		Long: `Kubeconfig prints a kubeconfig with a context for each cluster that watershed serve
mirrors and one for all of them together. The context of a cluster has the name of the
cluster. If the cluster is a context of a kubeconfig, it has the name and the namespace
of that context. The context of all clusters is called fleet. All names begin with a
prefix, so that the kubeconfig can be merged with others.

The token in it is not a secret: the server does not ask for one.`,
		Example: `  watershed kubeconfig > replica.yaml
  kubectl --kubeconfig replica.yaml --context watershed-prod-eu get pods -A
  KUBECONFIG=~/.kube/config:replica.yaml kubectl --context watershed-fleet get nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printKubeconfig(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), s, prefix)
		},
	}
	stateFlag(cmd, &s)
	cmd.Flags().StringVar(&prefix, "prefix", prefix, "prefix of the names of contexts; may be empty")
	return cmd
}

// printKubeconfig writes the kubeconfig of the server that uses a state folder.
func printKubeconfig(ctx context.Context, out, trouble io.Writer, s state, prefix string) error {
	if err := s.find(); err != nil {
		return err
	}
	running, err := s.server()
	if err != nil {
		return err
	}
	ca, err := serving.ReadBundle(s.authorityFile())
	if errors.Is(err, os.ErrNotExist) {
		return errNotServing
	}
	if err != nil {
		return err
	}
	names, err := clusterNames(ctx, running.Address, ca)
	if err != nil {
		return err
	}
	contexts, err := running.contexts()
	if err != nil { // the server keeps its clusters without the kubeconfig
		fmt.Fprintf(trouble, "watershed: namespaces are left out: %v\n", err)
	}
	text, err := clientcmd.Write(*newKubeconfig(running.Address, ca, prefix, names, contexts))
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// contexts returns the contexts that the server mirrors.
func (s *server) contexts() ([]directory.Context, error) {
	if len(s.Kubeconfig) == 0 {
		return nil, nil
	}
	return directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: s.Kubeconfig, Contexts: s.Contexts}).Read()
}

// clusterNames requests the names of the server's clusters, including aliases.
func clusterNames(ctx context.Context, address string, ca []byte) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	// No proxy is used: the server is on this machine.
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
			Name    string   `json:"name"`
			Aliases []string `json:"aliases"`
		} `json:"clusters"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClusters)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("server at %s: list clusters: %w", address, err)
	}
	names := make([]string, 0, len(answer.Clusters))
	for _, c := range answer.Clusters {
		names = append(append(names, c.Name), c.Aliases...)
	}
	return names, nil
}

// newKubeconfig returns a kubeconfig with these clusters and the fleet. The current
// context is the fleet, or the cluster if there is only one.
func newKubeconfig(address string, ca []byte, prefix string, clusters []string, contexts []directory.Context) *clientcmdapi.Config {
	mirrored := map[string]directory.Context{}
	for _, c := range contexts {
		mirrored[c.Cluster] = c
	}
	k := clientcmdapi.NewConfig()
	add := func(name, path, namespace string) {
		name = prefix + name
		k.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address + path, CertificateAuthorityData: ca}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: userName, Namespace: namespace}
		k.CurrentContext = name
	}
	k.AuthInfos[userName] = &clientcmdapi.AuthInfo{Token: userToken}
	for _, cluster := range clusters {
		name := cmp.Or(mirrored[cluster].Name, cluster)
		if name == fleetContext {
			name = "clusters/" + name
		}
		add(name, "/clusters/"+url.PathEscape(cluster), mirrored[cluster].Namespace)
	}
	only := k.CurrentContext
	add(fleetContext, "/fleet", "")
	if len(clusters) == 1 {
		k.CurrentContext = only
	}
	return k
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

func (c *Cluster) newEtcd() *Process {
	client := "http://" + c.ports[portEtcd].addr()
	peer := "http://" + c.ports[portEtcdPeer].addr()
	args := []string{
		"--data-dir=" + c.etcdData(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--quota-backend-bytes=" + strconv.Itoa(8<<30),
		"--log-level=warn",
	}
	if !c.opts.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return c.process(c.bin.Etcd, c.etcdReady, args...)
}

func (c *Cluster) newAPIServer() *Process {
	args := []string{
		"--etcd-servers=" + c.EtcdURL(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports[portAPIServer].number),
		// The address is for other members of a cluster, of which there are none. Without
		// it the server requires a route to the outside; it refuses loopback.
		"--advertise-address=192.0.2.1",
		"--cert-dir=" + c.dir,
		"--tls-cert-file=" + c.keys.servingCert,
		"--tls-private-key-file=" + c.keys.servingKey,
		"--service-account-key-file=" + c.keys.serviceAccount,
		"--service-account-signing-key-file=" + c.keys.serviceAccount,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + c.tokenFile(),
		"--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--allow-privileged=true",
		// The plugin refuses pods until a controller has created their service account.
		"--disable-admission-plugins=ServiceAccount",
	}
	p := c.process(c.bin.APIServer, c.apiReady, append(args, c.opts.APIServerArgs...)...)
	p.env = append(p.env, c.opts.env...)
	return p
}

func (c *Cluster) etcdReady(ctx context.Context) error {
	return get(ctx, &http.Transport{}, c.EtcdURL()+"/readyz", "")
}

// apiReady also requests the default namespace: the server creates it a moment after it
// reports that it is ready.
func (c *Cluster) apiReady(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.keys.ca)
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		if err := get(ctx, tr, c.URL()+path, c.token(admin)); err != nil {
			return err
		}
	}
	return nil
}

// get sends one request on its own connection, so that nothing is left open.
func get(ctx context.Context, tr *http.Transport, url, token string) error {
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s: %s", url, resp.Status, body)
	}
	return nil
}

// poll calls ask until there is no error or ctx ends. Its error has both reasons.
func poll(ctx context.Context, what string, ask func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)", what, err, ctx.Err())
		case <-tick.C:
		}
	}
}

// WaitReady returns when the API server is ready. After etcd was down, that takes a
// while.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return poll(ctx, "kube-apiserver", c.apiReady)
}

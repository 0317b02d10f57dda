// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// writeFormerAuthority writes an authority as the first releases created it: with the
// same name as the server's own certificate.
func writeFormerAuthority(t *testing.T, s *state.Dir) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "watershed"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"localhost"},
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}, {
				IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128),
			},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	content = append(content, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(s.AuthorityFile(), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCurl checks that curl, and openssl at its strictest, trust the server by the
// authority alone. They are stricter than Go: they treat a certificate with the name of
// its issuer as self-signed.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed: the server's certificate is not tried with another TLS library")
	}
	for name, prepare := range map[string]func(*testing.T, *state.Dir){
		"new": func(*testing.T, *state.Dir) {}, "kept from an earlier release": writeFormerAuthority,
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Dir{Path: t.TempDir()}
			prepare(t, s)
			address, end := commandtest.Begin(t, s, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("ok"))
			}))
			defer func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			}()
			ca, made := commandtest.OpenAuthority(t, s)
			if made {
				t.Error("the authority is replaced: clients would need another kubeconfig")
			}
			trusted := filepath.Join(s.Path, "ca.pem")
			if err := os.WriteFile(trusted, ca.Bundle(), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, host := range []string{"127.0.0.1", "localhost"} {
				_, port, _ := net.SplitHostPort(address)
				out, err := exec.CommandContext(t.Context(), curl, "--silent", "--show-error", "--noproxy", "*",
					"--ipv4",
					"--cacert", trusted, "https://"+net.JoinHostPort(host, port)+"/").CombinedOutput()
				if err != nil || string(out) != "ok" {
					t.Errorf("curl of %s: %v: %s", host, err, out)
				}
			}
			leaf, err := ca.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			verifyStrictly(t, trusted, leaf.Leaf)
		})
	}
}

// verifyStrictly checks a certificate as Python does since 3.13.
func verifyStrictly(t *testing.T, trusted string, leaf *x509.Certificate) {
	t.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("openssl is not installed: the certificate is not verified strictly")
		return
	}
	cmd := exec.CommandContext(t.Context(), openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile",
		trusted)
	cmd.Stdin = bytes.NewReader(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "OK") {
		t.Errorf("openssl verify: %v: %s", err, out)
	}
}

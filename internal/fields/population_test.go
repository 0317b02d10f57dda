// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// statuses are the statuses that controllers would set on the objects.
var statuses = [][]string{
	{
		"pod", "running",
		`{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"},{"ip":"fd00::1"}]}}`,
	},
	{"pod", "waiting", `{"status":{"nominatedNodeName":"open"}}`},
	{"rc", "busy", `{"status":{"replicas":3}}`},
	{"rs", "idle", `{"status":{"replicas":0}}`},
	{"job", "half", `{"status":{"succeeded":2,"startTime":"2026-01-01T00:00:00Z"}}`},
}

// populate creates the objects of testdata.
func populate(ctx context.Context, t *testing.T, k *kubetest.Cluster) {
	t.Helper()
	kubectl := func(input string, args ...string) {
		t.Helper()
		if out, err := k.KubectlInput(ctx, input, args...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	kubectl("", "create", "serviceaccount", "builder", "--namespace=kube-system")
	objects := read(t, "testdata/objects.yaml")
	signing, certificate := request(t, "a"), authority(t)
	objects = strings.NewReplacer(
		"request: CSR", "request: "+
			base64.StdEncoding.EncodeToString(
				pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: signing}),
			),
		"stubPKCS10Request: STUB", "stubPKCS10Request: "+base64.StdEncoding.EncodeToString(request(t, "")),
		"trustBundle: CERTIFICATE", "trustBundle: "+strconv.Quote(string(certificate)),
	).Replace(objects)
	kubectl(objects, "create", "-f", "-")
	kubectl("", "wait", "--for=condition=Established", "--timeout=1m", "crd/widgets.example.com",
		"crd/gadgets.example.com")
	kubectl(read(t, "testdata/widgets.yaml"), "create", "-f", "-")
	for _, s := range statuses {
		kubectl("", "patch", s[0], s[1], "--subresource=status", "--type=merge", "-p", s[2])
	}
	kubectl("", "delete", "namespace", "going", "--wait=false")
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request returns a certificate request.
func request(t *testing.T, name string) []byte {
	t.Helper()
	b, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}},
		newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// authority returns a certificate of an authority, as PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour),
	}
	b, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b})
}

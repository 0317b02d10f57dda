// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Secret returns secret i, any number from 0 up, of about 8 KB: mostly Helm releases,
// which are compressed and then encoded in base64, and some pairs of a key and
// certificates. Neither can be compressed by much more than what base64 adds.
func (w Workload) Secret(i int) *corev1.Secret {
	own := rand.New(rand.NewPCG(w.Seed, uint64(i)|1<<40))
	app := fmt.Sprintf("service-%05d", i/podsPerApp)
	made := metav1.NewTime(workloadStart.Add(time.Duration(i) * time.Second))
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace:         w.namespace(i),
		UID:               uid(own),
		CreationTimestamp: made,
	}}
	if i%podsPerApp < 8 {
		release := i%podsPerApp + 1
		s.Name = fmt.Sprintf("sh.helm.release.v1.%s.v%d", app, release)
		s.Labels = map[string]string{
			"name": app, "owner": "helm", "status": "superseded", "version": fmt.Sprint(release),
			"modifiedAt": fmt.Sprint(made.Unix()),
		}
		s.Type = "helm.sh/release.v1"
		s.Data = map[string][]byte{"release": noise(own, 5800)}
	} else {
		s.Name = fmt.Sprintf("%s-tls-%d", app, i%podsPerApp)
		s.Labels = map[string]string{"app.kubernetes.io/name": app, "controller.cert-manager.io/fao": "true"}
		s.Annotations = map[string]string{
			"cert-manager.io/common-name": app + ".example.com",
			"cert-manager.io/issuer-name": "production", "cert-manager.io/issuer-kind": "ClusterIssuer",
		}
		s.Type = corev1.SecretTypeTLS
		s.Data = map[string][]byte{
			"ca.crt":                armoured("CERTIFICATE", rand.New(rand.NewPCG(w.Seed, 1<<41)), 1100),
			corev1.TLSCertKey:       armoured("CERTIFICATE", own, 3000),
			corev1.TLSPrivateKeyKey: armoured("RSA PRIVATE KEY", own, 1700),
		}
	}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "helm", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &made,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(
			`{"f:data":{".":{},"f:release":{}},"f:metadata":{"f:labels":{".":{},"f:modifiedAt":{},"f:name":{},"f:owner":{},"f:status":{},"f:version":{}}},"f:type":{}}`,
		),
	}}
	return s
}

// noise returns n random bytes in base64.
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return []byte(base64.StdEncoding.EncodeToString(b))
}

func armoured(what string, r *rand.Rand, n int) []byte {
	out := []byte("-----BEGIN " + what + "-----\n")
	for text := noise(r, n); len(text) > 0; {
		line := text[:min(64, len(text))]
		out = append(append(out, line...), '\n')
		text = text[len(line):]
	}
	return append(out, "-----END "+what+"-----\n"...)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strconv"
	"testing"
	"text/template"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// read reads a file of objects. It is a template, so that times can be relative to now.
func read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second) // etcd would keep the rest of a second
	parsed, err := template.New(file).Funcs(template.FuncMap{
		"ago": func(s string) (string, error) {
			d, err := time.ParseDuration(s)
			return now.Add(-d).UTC().Format(`"2006-01-02T15:04:05.000000Z"`), err
		},
		"csr":         func() (string, error) { return signingRequest("a", true) },
		"stub":        func() (string, error) { return signingRequest("", false) },
		"certificate": certificate,
	}).Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, nil); err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []map[string]any }
	j, err := yaml.ToJSON(b.Bytes())
	if err == nil {
		err = json.Unmarshal(j, &list)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var objects []*unstructured.Unstructured
	for _, o := range list.Items {
		objects = append(objects, &unstructured.Unstructured{Object: o})
	}
	return objects
}

// populate creates objects, sets their status, and deletes those that are marked for it.
// Namespaced objects without a namespace are created in the default one.
func populate(ctx context.Context, t *testing.T, k *kubetest.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	cfg := quiet(k)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mapper meta.RESTMapper
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		var mapping *meta.RESTMapping
		err := eventually(ctx, func() (err error) {
			if mapper == nil {
				if mapper, err = discover(cfg); err != nil {
					return err
				}
			}
			if mapping, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
				mapper = nil // a definition may be new
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var c dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			c = client.Resource(mapping.Resource).Namespace("default")
		}
		made, err := make1(ctx, c, o)
		if err == nil && o.Object["status"] != nil && o.GetAnnotations()["test/store"] != "" {
			made.Object["status"] = o.Object["status"]
			err = store(ctx, k, mapping.Resource.GroupResource(), made)
		}
		if err != nil {
			t.Errorf("make %s %s: %v", gvk, o.GetName(), err)
		}
	}
}

// quiet returns a config without rate limits, and without warnings about deprecated
// kinds.
func quiet(k *kubetest.Cluster) *rest.Config {
	cfg := k.Config()
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	return cfg
}

// store writes an object directly into etcd.
func store(
	ctx context.Context, k *kubetest.Cluster, resource schema.GroupResource, o *unstructured.Unstructured,
) error {
	truth, err := k.Truth(ctx, resource)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(truth.Objects, func(s kubetest.Stored) bool { return s.Meta.GetUID() == o.GetUID() })
	if i < 0 {
		return errors.New("it is not in etcd")
	}
	o.SetResourceVersion("")
	b, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return k.Put(ctx, truth.Objects[i].Key, b)
}

func make1(
	ctx context.Context, c dynamic.ResourceInterface, o *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	var made *unstructured.Unstructured
	err := eventually(ctx, func() (err error) {
		made, err = c.Create(ctx, o, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			made, err = c.Get(ctx, o.GetName(), metav1.GetOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) { // its definition may be new
			return hopeless(err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if status, ok := o.Object["status"]; ok && o.GetAnnotations()["test/store"] == "" {
		subresource := "status"
		if o.GetKind() == "CertificateSigningRequest" {
			subresource = "approval"
		}
		made.Object["status"] = status
		if _, err := c.Update(ctx, made, metav1.UpdateOptions{}, subresource); err != nil {
			return nil, fmt.Errorf("its status: %w", err)
		}
	}
	if o.GetAnnotations()["test/delete"] != "" {
		return made, c.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	return made, nil
}

func discover(cfg *rest.Config) (meta.RESTMapper, error) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

// signingRequest returns a certificate request in base64, as PEM or in binary form.
func signingRequest(name string, asPEM bool) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if asPEM {
		request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	}
	return base64.StdEncoding.EncodeToString(request), err
}

func certificate() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	return strconv.Quote(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))), err
}

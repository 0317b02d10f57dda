// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// fields are a part of an object.
type fields = map[string]any

// kind is a type of objects that are created, changed and deleted.
type kind struct {
	schema.GroupVersionResource
	name string
	// names is the largest number of objects in a namespace.
	names int
	// body returns the fields of a new object besides its metadata.
	body func(*rand.Rand) fields
	// change returns a patch of the fields besides metadata.
	change func(*rand.Rand) fields
}

// patchType returns the type of patch that change returns.
func (k *kind) patchType() types.PatchType {
	if k.Group == sites.Group {
		return types.MergePatchType
	}
	return types.StrategicMergePatchType
}

// object returns a new object of the kind.
func (k *kind) object(name string, labels fields, rng *rand.Rand) *unstructured.Unstructured {
	o := k.body(rng)
	o["apiVersion"], o["kind"] = k.GroupVersion().String(), k.name
	o["metadata"] = fields{"name": name, "labels": labels}
	return &unstructured.Unstructured{Object: o}
}

var (
	core       = schema.GroupVersion{Version: "v1"}
	apps       = schema.GroupVersion{Group: "apps", Version: "v1"}
	batch      = schema.GroupVersion{Group: "batch", Version: "v1"}
	networking = schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
	discovery  = schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
	sites      = schema.GroupVersionResource{Group: "example.watershed.dev", Version: "v1", Resource: "sites"}
)

// kinds are the kinds that the factory's informers follow.
var kinds = []*kind{
	{core.WithResource("pods"), "Pod", 30, podBody, podChange},
	{core.WithResource("configmaps"), "ConfigMap", 60, text, text},
	{core.WithResource("secrets"), "Secret", secretNames, secretData, secretData},
	{core.WithResource("services"), "Service", 15, serviceBody, serviceChange},
	{core.WithResource("serviceaccounts"), "ServiceAccount", 30, account, account},
	{discovery.WithResource("endpointslices"), "EndpointSlice", 30, slice, endpoints},
	{apps.WithResource("deployments"), "Deployment", 6, deploymentBody, scale},
	{apps.WithResource("replicasets"), "ReplicaSet", 6, replicaSetBody, scale},
	{batch.WithResource("jobs"), "Job", 8, jobBody, jobChange},
	{batch.WithResource("cronjobs"), "CronJob", 20, cronJobBody, cronJobChange},
	{networking.WithResource("ingresses"), "Ingress", 30, ingressBody, ingressChange},
	{networking.WithResource("networkpolicies"), "NetworkPolicy", 30, policy, policy},
}

// siteKind is the operator's kind.
var siteKind = &kind{sites, "Site", siteNames, siteBody, siteChange}

const (
	secretNames = 40
	siteNames   = 8
)

func objectName(n int) string { return fmt.Sprintf("x%d", n) }

func siteName(n int) string { return fmt.Sprintf("site-%d", n) }

func spec(f fields) fields { return fields{"spec": f} }

// number returns a random number of the type that decoded JSON has.
func number(rng *rand.Rand, n int64) int64 { return rng.Int64N(n) }

func version(rng *rand.Rand) string { return fmt.Sprintf("1.%d", rng.IntN(10_000)) }

func containers(rng *rand.Rand) []any {
	return []any{fields{"name": "main", "image": "registry.example/x:" + version(rng)}}
}

func podBody(rng *rand.Rand) fields {
	return spec(fields{"containers": containers(rng), "terminationGracePeriodSeconds": int64(1)})
}

func podChange(rng *rand.Rand) fields { return spec(fields{"containers": containers(rng)}) }

// text returns a text that is sometimes long.
func text(rng *rand.Rand) fields {
	b := make([]byte, 20<<(2*rng.IntN(5)))
	for i := range b {
		b[i] = 'a' + byte(rng.IntN(26))
	}
	return fields{"data": fields{"text": string(b)}}
}

func secretData(rng *rand.Rand) fields {
	return fields{"data": fields{"password": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%x", rng.Uint64()))}}
}

func serviceBody(rng *rand.Rand) fields {
	return spec(fields{
		"selector": fields{"app": objectName(rng.IntN(6))},
		"ports":    []any{fields{"name": "http", "port": int64(80), "targetPort": int64(8080)}},
	})
}

func serviceChange(rng *rand.Rand) fields {
	return spec(fields{"selector": fields{"app": objectName(rng.IntN(6))}})
}

func account(rng *rand.Rand) fields {
	return fields{"automountServiceAccountToken": rng.IntN(2) == 0}
}

func slice(rng *rand.Rand) fields {
	f := endpoints(rng)
	f["addressType"] = "IPv4"
	return f
}

func endpoints(rng *rand.Rand) fields {
	var all []any
	for range 1 + rng.IntN(3) {
		all = append(all, fields{"addresses": []any{fmt.Sprintf("10.9.%d.%d", rng.IntN(256), 1+rng.IntN(254))}})
	}
	return fields{"endpoints": all}
}

// template returns a template of pods that a service may select.
func template(rng *rand.Rand, labels fields, more fields) fields {
	podSpec := fields{"containers": containers(rng), "terminationGracePeriodSeconds": int64(1)}
	for name, value := range more {
		podSpec[name] = value
	}
	return fields{"metadata": fields{"labels": labels}, "spec": podSpec}
}

func deploymentBody(rng *rand.Rand) fields {
	labels := fields{"app": objectName(rng.IntN(6)), "by": "deployment"}
	return spec(fields{
		"replicas": number(rng, 4), "selector": fields{"matchLabels": labels}, "template": template(rng, labels, nil),
	})
}

func replicaSetBody(rng *rand.Rand) fields {
	labels := fields{"app": objectName(rng.IntN(6)), "by": fmt.Sprint("replicaset-", rng.IntN(1_000_000))}
	return spec(fields{
		"replicas": number(rng, 3), "selector": fields{"matchLabels": labels}, "template": template(rng, labels, nil),
	})
}

func scale(rng *rand.Rand) fields { return spec(fields{"replicas": number(rng, 4)}) }

func jobBody(rng *rand.Rand) fields {
	return spec(fields{"template": template(rng, fields{"by": "job"}, fields{"restartPolicy": "Never"})})
}

func jobChange(rng *rand.Rand) fields { return spec(fields{"parallelism": number(rng, 3)}) }

func cronJobBody(rng *rand.Rand) fields {
	f := cronJobChange(rng)
	f["spec"].(fields)["suspend"] = true
	f["spec"].(fields)["jobTemplate"] = jobBody(rng)
	return f
}

func cronJobChange(rng *rand.Rand) fields {
	return spec(fields{"schedule": fmt.Sprintf("%d 3 * * *", rng.IntN(60))})
}

func ingressBody(rng *rand.Rand) fields {
	f := ingressChange(rng)
	f["spec"].(fields)["defaultBackend"] = fields{"service": fields{"name": "web", "port": fields{"number": int64(80)}}}
	return f
}

func ingressChange(rng *rand.Rand) fields {
	return spec(fields{"ingressClassName": fmt.Sprint("class-", rng.IntN(100))})
}

func policy(rng *rand.Rand) fields {
	return spec(fields{"podSelector": fields{"matchLabels": fields{"app": objectName(rng.IntN(6))}}})
}

func siteBody(rng *rand.Rand) fields {
	return spec(fields{
		"image":    "registry.example/site:" + version(rng),
		"replicas": 1 + number(rng, 2),
		"secret":   objectName(rng.IntN(secretNames)),
	})
}

// siteChange returns a patch with one new field.
func siteChange(rng *rand.Rand) fields {
	all := siteBody(rng)["spec"].(fields)
	name := []string{"image", "replicas", "secret"}[rng.IntN(3)]
	return spec(fields{name: all[name]})
}

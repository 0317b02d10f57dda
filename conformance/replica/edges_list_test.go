// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"fmt"
	"net/url"
)

// labelSelectors cover the whole grammar, and invalid selectors.
var labelSelectors = []string{
	"", "app", "!app", "app=web", "app==web", "app!=web", "app=", "app==", "app!=", "empty=", "empty", "!empty", "=web",
	"==", "!", "!!app",
	"app in (web)", "app in (web,db)", "app notin (web,db)", "app in ()", "app in (,)", "app in (web,)", "app in web",
	"app in (web", "in", "notin",
	"in in (in)", "app=web,tier=front", "app=web,tier!=front", "app=web,,tier", ",", " , ", " app = web ",
	"app=web tier=front", "app=web;tier",
	"example.com/rank>6", "example.com/rank<6", "example.com/rank>7", "example.com/rank>x", "app>5",
	"example.com/rank=7", "/rank=7", "a/b/c=1", "example.com/=1",
	"app=-web", "app=web-", "app=a b", "APP=web", "app=äpfel", "-app=web", "app.=web", "parity=odd,row in (1,2,3)",
	"parity,row notin (0)",
	"x=" + "0123456789012345678901234567890123456789012345678901234567890123456789",
	"app in (web),tier in (front,back),!empty", "app=web\ttier", "app\n=web", "app=\"web\"", "row=3,row=4",
	"row=3,row!=3", "kubernetes.io/metadata.name=shop", "app=web=x", "(app)", "app=(web)",
}

// fieldSelectors are selectors by collection.
var fieldSelectors = map[string][]string{
	"/api/v1/namespaces/shop/configmaps": {
		"metadata.name=settings", "metadata.name==settings", "metadata.name!=settings", "metadata.namespace=shop",
		"metadata.namespace!=shop", "metadata.name=absent",
		"metadata.name=settings,metadata.namespace=shop", "metadata.name=settings,metadata.name=empty",
		"data.color=red", "metadata.uid=x", "metadata.name", "metadata.name in (settings)",
		"=x", ",", "metadata.name=a=b", `metadata.name=a\=b`, `metadata.name=a\,b`, `metadata.name=\x`,
		"metadata.name=", "metadata.name!=", "spec.nodeName=x", "metadata.name = settings", "METADATA.NAME=settings",
		"metadata.name=Set/tings", "metadata.labels.app=web",
	},
	"/api/v1/configmaps": {
		"metadata.name=settings", "metadata.namespace=shop", "metadata.name=settings,metadata.namespace!=shop",
	},
	"/api/v1/namespaces": {
		"status.phase=Active", "status.phase!=Active", "name=shop", "metadata.name=shop", "metadata.namespace=",
		"spec.x=1",
	},
	"/api/v1/pods": {
		"status.phase=Running", "status.phase!=Running", "spec.nodeName=node-0", "spec.nodeName!=node-0",
		"spec.nodeName=", "spec.host=node-0", "spec.restartPolicy=Never", "spec.schedulerName=default-scheduler",
		"spec.serviceAccountName=default", "spec.hostNetwork=true", "spec.hostNetwork=false", "status.podIP=10.9.9.9",
		"status.podIPs=10.9.9.9", "status.nominatedNodeName=", "spec.containers=x",
		"status.phase=Running,spec.nodeName=node-1,metadata.namespace=shop", "metadata.namespace=shop",
	},
	"/api/v1/nodes": {
		"spec.unschedulable=true", "spec.unschedulable=false", "spec.unschedulable!=true", "metadata.name=node-0",
		"spec.podCIDR=x",
	},
	"/api/v1/events": {
		"involvedObject.kind=Pod", "involvedObject.name=settings", "involvedObject.namespace=shop",
		"involvedObject.uid=x", "involvedObject.apiVersion=v1", "involvedObject.resourceVersion=",
		"involvedObject.fieldPath=", "reason=Scheduled", "reportingComponent=", "source=teller", "type=Warning",
		"type!=Warning", "count=3", "involvedObject.uid=${uid:pods/shop/db-0},involvedObject.name=db-0",
	},
	"/apis/events.k8s.io/v1/events": {
		"regarding.kind=Pod", "regarding.name=settings", "reason=Scheduled", "type=Warning", "involvedObject.kind=Pod",
		"reportingController=example.com/teller", "source=teller",
	},
	"/api/v1/secrets": {
		"type=Opaque", "type!=Opaque", "type=kubernetes.io/basic-auth", "data.x=1",
	},
	"/api/v1/services": {
		"spec.type=ClusterIP", "spec.clusterIP=None", "spec.clusterIP!=None", "spec.type!=ClusterIP", "spec.x=1",
	},
	"/api/v1/replicationcontrollers": {
		"status.replicas=1", "status.replicas=0", "spec.replicas=1",
	},
	"/api/v1/persistentvolumes": {"name=disk-1", "metadata.name=disk-1", "spec.x=1"},
	"/api/v1/persistentvolumeclaims": {
		"metadata.name=data", "name=data", "status.phase=Bound",
	},
	"/apis/apps/v1/replicasets": {
		"status.replicas=3", "status.replicas!=3", "spec.replicas=3",
	},
	"/apis/apps/v1/deployments":  {"metadata.name=web", "status.replicas=3"},
	"/apis/apps/v1/statefulsets": {"status.successful=1", "metadata.name=db"},
	"/apis/batch/v1/jobs": {
		"status.successful=2", "status.successful!=2", "status.failed=0",
	},
	"/apis/batch/v1/cronjobs": {"status.successful=1"},
	"/apis/certificates.k8s.io/v1/certificatesigningrequests": {
		"spec.signerName=kubernetes.io/kube-apiserver-client", "spec.signerName!=x", "spec.username=admin",
	},
	"/apis/certificates.k8s.io/v1/clustertrustbundles": {"spec.signerName=", "spec.signerName=x", "spec.x=1"},
	"/apis/resource.k8s.io/v1/resourceslices": {
		"spec.nodeName=node-0", "spec.driver=gpu.example.com", "spec.nodeName=x", "spec.pool=x",
	},
	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
		"metadata.name=widgets.example.com", "spec.group=example.com",
	},
	"/apis/apiregistration.k8s.io/v1/apiservices": {"metadata.name=v1.", "spec.group=apps"},
	"/apis/example.com/v1/widgets": {
		"spec.color=red", "spec.color!=red", "spec.size=3", "spec.size=1", "spec.shiny=true", "spec.shiny=false",
		"spec.shiny=", "spec.weight=1.5", "metadata.name=one", "metadata.namespace=shop",
		"spec.color=red,metadata.namespace=shop", "spec.color=red,spec.size!=1", ".spec.color=red",
	},
	"/apis/example.com/v1/planets": {
		"metadata.name=earth", "metadata.namespace=x", "spec.mass=1",
	},
	"/apis/coordination.k8s.io/v1/namespaces/shop/leases": {"metadata.name=leader", "spec.holderIdentity=robot-0"},
}

// selectorEdges returns requests with label and field selectors.
func selectorEdges() []request {
	var out []request
	for _, uri := range []string{"/api/v1/configmaps", "/api/v1/namespaces/shop/pods", "/apis/example.com/v1/widgets"} {
		for _, s := range labelSelectors {
			out = append(out, request{
				Category: "label selectors", URI: uri + "?labelSelector=" + url.QueryEscape(s), Accept: metadataAccept,
			})
		}
	}
	for uri, selectors := range fieldSelectors {
		for _, s := range selectors {
			out = append(out, request{
				Category: "field selectors", URI: uri + "?fieldSelector=" + keepPlaceholders(s), Accept: metadataAccept,
			})
		}
	}
	for _, q := range []string{
		"labelSelector=app%3Dweb&fieldSelector=status.phase%3DRunning", "labelSelector=app&labelSelector=tier",
		"fieldSelector=status.phase%3DRunning&fieldSelector=x",
		"labelselector=app", "label-selector=app", "labelSelector=app%ZZ", "fieldSelector=%", "labelSelector",
		"unknown=parameter", "labelSelector=app;x=y",
	} {
		out = append(out, request{Category: "label selectors", URI: "/api/v1/pods?" + q, Accept: tableAccept})
	}
	// Selectors do not apply to a single object: it exists or not.
	for _, q := range []string{
		"labelSelector=app%3Ddb", "fieldSelector=metadata.name%3Dx", "labelSelector=!!", "limit=x", "limit=1",
		"continue=x",
	} {
		out = append(out, request{
			Category: "label selectors", URI: "/api/v1/namespaces/shop/configmaps/settings?" + q, Accept: jsonAccept,
		})
	}
	return out
}

// keepPlaceholders escapes a value except for its placeholders.
func keepPlaceholders(s string) string {
	out, last := "", 0
	for _, m := range placeholder.FindAllStringIndex(s, -1) {
		out += url.QueryEscape(s[last:m[0]]) + s[m[0]:m[1]]
		last = m[1]
	}
	return out + url.QueryEscape(s[last:])
}

// pageEdges returns lists in pages.
func pageEdges() []request {
	var out []request
	follow := func(uri, accept string) {
		out = append(out, request{Category: "paging", URI: uri, Accept: accept, Pages: true})
	}
	for _, accept := range []string{jsonAccept, protobufAccept, tableAccept, metadataAccept} {
		follow("/api/v1/namespaces/bulk/configmaps?limit=7", accept)
		follow("/apis/example.com/v1/widgets?limit=1", accept)
	}
	for _, q := range []string{
		"limit=1", "limit=59", "limit=60", "limit=61", "limit=500", "limit=13&labelSelector=parity%3Dodd",
		"limit=100&labelSelector=parity%3Dodd", "limit=7&fieldSelector=metadata.name%21%3Dsettings-003",
		"limit=7&resourceVersion=0", "limit=7&resourceVersion=${rv}",
		"limit=7&resourceVersion=${rv}&resourceVersionMatch=NotOlderThan",
		"limit=7&resourceVersion=${rv}&resourceVersionMatch=Exact", "limit=0", "limit=",
	} {
		follow("/api/v1/namespaces/bulk/configmaps?"+q, metadataAccept)
	}
	for _, uri := range []string{
		"/api/v1/pods?limit=2", "/api/v1/events?limit=10", "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=20",
		"/api/v1/namespaces?limit=3", "/api/v1/configmaps?limit=10",
	} {
		follow(uri, tableAccept)
	}
	for _, q := range []string{
		"limit=-1", "limit=x", "limit=1.5", "limit=99999999999999999999", "limit=9223372036854775807", "limit=0x10",
		"limit=5&limit=7", "limit=%205",
		"continue=x", "continue=", "continue=AAAA", "limit=5&continue=x",
		"limit=5&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "limit=5&continue=!!!!",
		"limit=5&continue=eyJ2IjoidjkifQ", "continue=x&resourceVersion=0", "continue=x&resourceVersion=5",
		"limit=5&continue=x&resourceVersionMatch=Exact",
		"limit=5&continue=x&resourceVersion=5&resourceVersionMatch=NotOlderThan",
	} {
		for _, uri := range []string{"/api/v1/namespaces/bulk/configmaps", "/apis/example.com/v1/widgets"} {
			out = append(out, request{Category: "paging", URI: uri + "?" + q, Accept: jsonAccept})
		}
	}
	return out
}

// versions are possible values of resourceVersion; "-" omits it.
var versions = []string{
	"-", "", "0", "${rv}", "${rv:configmaps/shop/settings}", "1", "999999999", "abc", "-1", "1.5",
	"99999999999999999999999", "0x1",
}

// versionEdges returns lists and objects at versions.
func versionEdges() []request {
	var out []request
	for _, match := range []string{"-", "", "NotOlderThan", "Exact", "Nearly"} {
		for _, v := range versions {
			for _, limit := range []string{"", "limit=3&"} {
				uri := "/api/v1/namespaces/shop/configmaps?" + limit
				if v != "-" {
					uri += "resourceVersion=" + v + "&"
				}
				if match != "-" {
					uri += "resourceVersionMatch=" + match
				}
				out = append(out, request{Category: "versions", URI: uri, Accept: metadataAccept})
			}
		}
	}
	for _, v := range versions {
		out = append(out,
			request{
				Category: "versions",
				URI:      "/api/v1/namespaces/shop/configmaps/settings?resourceVersion=" + v,
				Accept:   jsonAccept,
			},
			request{
				Category: "versions",
				URI:      "/apis/example.com/v1/namespaces/shop/widgets?resourceVersion=" + v,
				Accept:   tableAccept,
			},
			request{
				Category: "versions",
				URI:      "/api/v1/namespaces/shop/configmaps/absent?resourceVersion=" + v,
				Accept:   jsonAccept,
			},
		)
	}
	for _, match := range []string{"Exact", "NotOlderThan", "x"} {
		out = append(out, request{
			Category: "versions",
			URI: fmt.Sprintf(
				"/api/v1/namespaces/shop/configmaps/settings?resourceVersion=${rv}&resourceVersionMatch=%s", match,
			),
			Accept: jsonAccept,
		})
	}
	for _, q := range []string{
		"sendInitialEvents=true", "sendInitialEvents=false", "sendInitialEvents=x", "allowWatchBookmarks=true",
		"timeoutSeconds=5", "timeoutSeconds=x", "timeout=5s", "timeout=x", "watch=false", "watch=0", "watch=False",
	} {
		out = append(out, request{
			Category: "versions", URI: "/api/v1/namespaces/shop/configmaps?" + q, Accept: metadataAccept,
		})
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

// watchEdges returns watches that receive only their initial events. Each ends by itself.
func watchEdges() []request {
	var out []request
	add := func(accept string, uris ...string) {
		for _, uri := range uris {
			out = append(out, request{Category: "watches", URI: uri, Accept: accept})
		}
	}
	const base = "/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=1"
	for _, initial := range []string{"", "true", "false", "x"} {
		for _, version := range []string{"-", "", "0", "${rv}", "abc"} {
			for _, match := range []string{"", "NotOlderThan", "Exact"} {
				for _, bookmarks := range []string{"", "&allowWatchBookmarks=true"} {
					uri := base + bookmarks
					if initial != "" {
						uri += "&sendInitialEvents=" + initial
					}
					if version != "-" {
						uri += "&resourceVersion=" + version
					}
					if match != "" {
						uri += "&resourceVersionMatch=" + match
					}
					add(jsonAccept, uri)
				}
			}
		}
	}
	const stream = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, accept := range []string{
		"", jsonAccept, "application/yaml", protobufAccept, "application/cbor", "text/html", "*/*", tableAccept,
		tablesAccept, objectAccept, metadataAccept, "application/json;stream=watch",
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;stream=watch",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf,application/json",
	} {
		add(accept,
			"/api/v1/namespaces/shop/pods?watch=1&resourceVersion=0&timeoutSeconds=1",
			"/api/v1/namespaces/shop/pods?watch=1&timeoutSeconds=1"+stream,
			"/apis/example.com/v1/widgets?watch=1&resourceVersion=0&timeoutSeconds=1",
			"/apis/example.com/v1/widgets?watch=1&timeoutSeconds=1"+stream,
		)
	}
	add(tableAccept, base+"&resourceVersion=0&includeObject=Object", base+"&resourceVersion=0&includeObject=None",
		base+"&resourceVersion=0&includeObject=x", base+stream+"&includeObject=Object")
	add(jsonAccept,
		"/api/v1/namespaces/shop/configmaps?watch=true&resourceVersion=999999999&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=true&resourceVersion=1&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=true&resourceVersion=${rv:configmaps/shop/settings}&timeoutSeconds=1",
		"/apis/example.com/v1/widgets?watch=true&resourceVersion=1&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=2",
		"/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion=0",
		"/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=x",
		"/api/v1/namespaces/shop/configmaps?watch=true&timeoutSeconds=-1&resourceVersion=x",
		"/api/v1/namespaces/shop/configmaps?watch=x&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=True&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=yes&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=0&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps?watch=true&watch=false&timeoutSeconds=1",
		base+"&labelSelector=!!", base+"&fieldSelector=data.x%3D1", base+"&resourceVersion=0&labelSelector=app%3Dweb",
		base+"&resourceVersion=0&fieldSelector=metadata.name%3Dsettings", base+stream+"&labelSelector=app%3Dweb",
		base+stream+"&fieldSelector=metadata.name%21%3Dsettings", base+stream+"&labelSelector=nothing",
		base+"&limit=1&resourceVersion=0", base+"&continue=x", base+"&limit=x",
		base+"&allowWatchBookmarks=x&resourceVersion=0", base+stream+"&limit=1", base+stream+"&continue=x",
		"/api/v1/namespaces/shop/configmaps/settings?watch=true&timeoutSeconds=1",
		"/api/v1/namespaces/shop/configmaps/settings?watch=true&timeoutSeconds=1&resourceVersion=0",
		"/api/v1/namespaces/shop/configmaps/settings?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dempty",
		"/api/v1/namespaces/shop/configmaps/absent?watch=true&timeoutSeconds=1",
		"/api/v1/namespaces/absent/configmaps?watch=true&timeoutSeconds=1&resourceVersion=0",
		"/api/v1/nothings?watch=true&timeoutSeconds=1",
		"/apis/nothing.example.com/v1/nothings?watch=true&timeoutSeconds=1",
		"/apis/example.com/v1beta1/widgets?watch=true&timeoutSeconds=1&resourceVersion=0",
		"/api/v1/componentstatuses?watch=true&timeoutSeconds=1",
		"/api/v1/watch/configmaps?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/namespaces/shop/configmaps?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/namespaces/shop/configmaps/settings?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/namespaces/shop/configmaps?timeoutSeconds=1",
		"/api/v1/watch/namespaces?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/namespaces/shop?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/nodes/node-0?resourceVersion=0&timeoutSeconds=1",
		"/apis/apps/v1/watch/deployments?resourceVersion=0&timeoutSeconds=1",
		"/apis/apps/v1/watch/namespaces/shop/deployments/web?resourceVersion=0&timeoutSeconds=1",
		"/apis/example.com/v1/watch/widgets?resourceVersion=0&timeoutSeconds=1",
		"/apis/example.com/v1/watch/namespaces/shop/widgets/one?resourceVersion=0&timeoutSeconds=1",
		"/api/v1/watch/nothings?timeoutSeconds=1", "/api/v1/watch?timeoutSeconds=1", "/api/v1/watch/?timeoutSeconds=1",
		"/api/v1/watch/namespaces/shop/configmaps?watch=false&timeoutSeconds=1",
		"/api/v1/watch/configmaps/settings?timeoutSeconds=1",
		"/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=status.phase%3DRunning",
		"/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.nodeName%3Dnode-0",
		"/apis/example.com/v1/widgets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.color%3Dred",
		"/apis/example.com/v1/widgets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.weight%3D1",
		"/api/v1/events?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=type%3DWarning",
		"/api/v1/secrets?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=type%3DOpaque",
		"/apis/apps/v1/deployments?watch=1&resourceVersion=0&timeoutSeconds=1",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=1&resourceVersion=0&timeoutSeconds=1&labelSelector=kubernetes.io%2Fbootstrapping",
	)
	out = append(out, request{
		Category: "watches",
		URI:      "/api/v1/namespaces/bulk/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1",
		Accept:   jsonAccept,
		Encoding: "gzip",
	},
		request{
			Category: "watches",
			URI:      "/api/v1/namespaces/bulk/configmaps?watch=1&timeoutSeconds=1" + stream,
			Accept:   jsonAccept,
			Encoding: "gzip",
		},
		request{
			Category: "watches",
			URI:      "/api/v1/namespaces/bulk/configmaps?watch=1&timeoutSeconds=1" + stream,
			Accept:   protobufAccept,
			Encoding: "gzip",
		})
	return out
}

// liveEdges returns watches of the namespace busy, in which objects change.
func liveEdges() []request {
	var out []request
	add := func(accept string, uris ...string) {
		for _, uri := range uris {
			out = append(out, request{Category: "live watches", URI: uri, Accept: accept})
		}
	}
	const (
		maps    = "/api/v1/namespaces/busy/configmaps?watch=true"
		widgets = "/apis/example.com/v1/namespaces/busy/widgets?watch=true"
		pods    = "/api/v1/namespaces/busy/pods?watch=true"
		stream  = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	)
	for _, accept := range []string{
		jsonAccept, protobufAccept, tableAccept, objectAccept,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	} {
		for _, start := range []string{
			"", "&resourceVersion=0", "&resourceVersion=${rv}", "&resourceVersion=${rv}&allowWatchBookmarks=true",
			stream,
		} {
			add(accept, maps+start)
		}
		add(accept, pods+"&resourceVersion=${rv}")
		if accept != protobufAccept {
			add(accept, widgets+"&resourceVersion=${rv}", widgets+stream)
		}
	}
	add(jsonAccept,
		maps+"&resourceVersion=${rv}&labelSelector=color%3Dred",
		maps+"&resourceVersion=${rv}&labelSelector=color%21%3Dred", maps+"&resourceVersion=${rv}&labelSelector=color",
		maps+"&resourceVersion=${rv}&labelSelector=%21color",
		maps+"&resourceVersion=${rv}&labelSelector=color+in+%28red%2Cblue%29", maps+stream+"&labelSelector=color%3Dred",
		maps+"&resourceVersion=0&labelSelector=color%3Dred",
		maps+"&resourceVersion=${rv}&fieldSelector=metadata.name%3Dalpha",
		maps+"&resourceVersion=${rv}&fieldSelector=metadata.name%21%3Dalpha",
		"/api/v1/namespaces/busy/configmaps/alpha?watch=true&resourceVersion=${rv}",
		"/api/v1/watch/namespaces/busy/configmaps?resourceVersion=${rv}",
		"/api/v1/watch/namespaces/busy/configmaps/alpha?resourceVersion=${rv}",
		"/api/v1/configmaps?watch=true&resourceVersion=${rv}",
		"/api/v1/configmaps?watch=true&resourceVersion=${rv}&fieldSelector=metadata.namespace%3Dbusy",
		"/api/v1/configmaps?watch=true&resourceVersion=${rv}&labelSelector=color%3Dblue",
		pods+"&resourceVersion=${rv}&fieldSelector=status.phase%3DRunning",
		pods+"&resourceVersion=${rv}&fieldSelector=status.phase%21%3DRunning",
		pods+"&resourceVersion=${rv}&fieldSelector=spec.nodeName%3Dnode-0",
		pods+stream+"&fieldSelector=status.phase%3DRunning",
		widgets+"&resourceVersion=${rv}&fieldSelector=spec.color%3Dred",
		widgets+"&resourceVersion=${rv}&fieldSelector=spec.color%21%3Dred",
		widgets+"&resourceVersion=${rv}&labelSelector=color%3Dred",
		"/apis/example.com/v1/widgets?watch=true&resourceVersion=${rv}",
		"/api/v1/namespaces/busy/secrets?watch=true&resourceVersion=${rv}",
		"/api/v1/namespaces/busy/events?watch=true&resourceVersion=${rv}",
		"/api/v1/namespaces/busy/pods?watch=true&resourceVersion=${rv}&allowWatchBookmarks=true",
		"/api/v1/namespaces/bare/configmaps?watch=true&resourceVersion=${rv}",
		"/apis/example.com/v1/planets?watch=true&resourceVersion=${rv}",
	)
	add(tableAccept,
		maps+"&resourceVersion=${rv}&labelSelector=color%3Dred", maps+"&resourceVersion=${rv}&includeObject=Object",
		maps+stream+"&includeObject=None", pods+"&resourceVersion=${rv}&fieldSelector=status.phase%3DRunning",
		widgets+"&resourceVersion=${rv}&fieldSelector=spec.color%3Dred",
		"/apis/example.com/v1/planets?watch=true&resourceVersion=${rv}",
	)
	add(protobufAccept, maps+"&resourceVersion=${rv}&labelSelector=color%3Dred",
		pods+"&resourceVersion=${rv}&fieldSelector=status.phase%3DRunning")
	return out
}

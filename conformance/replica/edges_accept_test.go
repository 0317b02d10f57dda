// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import "net/http"

// The media types that clients request.
const (
	jsonAccept     = "application/json"
	protobufAccept = "application/vnd.kubernetes.protobuf"
	metadataAccept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	objectAccept   = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	tableAccept    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	tablesAccept   = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)

// accepts are many possible Accept headers.
var accepts = []string{
	"",
	jsonAccept,
	"application/yaml",
	protobufAccept,
	"application/cbor",
	"*/*",
	"application/*",
	"text/*",
	"text/html",
	"application/xml",
	"json",
	";;;",
	"application/json,,",
	"APPLICATION/JSON",
	"application/json;charset=utf-8",
	"application/json;pretty=1",
	"application/json;pretty=0",
	"application/json;unknown=yes",
	"application/json;stream=watch",
	"application/json;q=0.5, application/yaml",
	"application/yaml;q=0.1,application/json;q=0.2",
	"application/yaml;q=0,application/json",
	"text/html, */*;q=0.1",
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
	"application/vnd.kubernetes.protobuf,application/json",
	"application/vnd.kubernetes.protobuf;q=0.1,application/json;q=0.9",
	"application/apply-patch+yaml",
	tableAccept,
	tablesAccept,
	"application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	"application/yaml;as=Table;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
	"application/*;as=Table;v=v1;g=meta.k8s.io",
	"*/*;as=Table;v=v1;g=meta.k8s.io",
	metadataAccept,
	objectAccept,
	"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
	"application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=Nothing;v=v1;g=meta.k8s.io",
	"application/json;as=Nothing;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=Table;v=v2;g=meta.k8s.io",
	"application/json;as=Table;v=v1;g=example.com",
	"application/json;as=Table",
	"application/json;as=Table;v=v1",
	"application/json;as=Table;g=meta.k8s.io",
	"application/json;as=Status;v=v1;g=meta.k8s.io",
	aggregatedAccept,
}

// acceptEdges returns requests for each kind of path with every Accept header.
func acceptEdges() []request {
	var out []request
	for _, uri := range []string{
		"/api/v1/namespaces/shop/pods",
		"/api/v1/namespaces/shop/configmaps/settings",
		"/apis/example.com/v1/namespaces/shop/widgets",
		"/apis/example.com/v1/namespaces/shop/widgets/one",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	} {
		for _, accept := range accepts {
			out = append(out, request{Category: "media types", URI: uri, Accept: accept})
		}
	}
	// An error also has a media type.
	for _, accept := range accepts {
		out = append(out, request{
			Category: "media types", URI: "/api/v1/namespaces/shop/configmaps/absent", Accept: accept,
		})
	}
	for _, uri := range []string{
		"/api/v1/namespaces/shop/configmaps/settings?pretty=true",
		"/api/v1/namespaces/shop/configmaps/settings?pretty=false",
		"/api/v1/namespaces/shop/configmaps/settings?pretty=1", "/api/v1/namespaces/shop/configmaps/settings?pretty=0",
		"/api/v1/namespaces/shop/configmaps/settings?pretty=x", "/api/v1/namespaces/shop/configmaps/settings?pretty",
		"/api/v1/namespaces/shop/configmaps?pretty=true", "/apis/example.com/v1/planets/earth?pretty=true",
		"/api/v1/namespaces/shop/configmaps/absent?pretty=true",
	} {
		out = append(out,
			request{Category: "media types", URI: uri},
			request{Category: "media types", URI: uri, Accept: jsonAccept},
			request{Category: "media types", URI: uri, Accept: tableAccept},
		)
	}
	return append(out, tableEdges()...)
}

// tableEdges returns requests with options of tables, and encodings.
func tableEdges() []request {
	var out []request
	for _, uri := range []string{
		"/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/configmaps/settings",
		"/apis/example.com/v1/namespaces/shop/widgets/one",
		"/api/v1/namespaces/bare/pods", "/apis/example.com/v1/namespaces/bare/widgets",
	} {
		for _, option := range []string{"None", "Metadata", "Object", "metadata", "Everything", ""} {
			out = append(out, request{Category: "tables", URI: uri + "?includeObject=" + option, Accept: tableAccept})
		}
		out = append(out, request{
			Category: "tables",
			URI:      uri + "?includeObject=Object",
			Accept:   "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
		})
	}
	for _, encoding := range []string{
		"gzip", "identity", "deflate", "br", "gzip, deflate, br", "gzip;q=0", "*", "GZIP", "identity;q=0",
	} {
		for _, uri := range []string{
			"/api/v1/namespaces/bulk/configmaps", "/api/v1/namespaces/shop/configmaps/settings",
		} {
			for _, accept := range []string{jsonAccept, protobufAccept} {
				out = append(out, request{Category: "compression", URI: uri, Accept: accept, Encoding: encoding})
			}
		}
	}
	for _, accept := range []string{"application/yaml", tableAccept, metadataAccept} {
		out = append(out, request{
			Category: "compression", URI: "/api/v1/namespaces/bulk/configmaps", Accept: accept, Encoding: "gzip",
		})
	}
	return out
}

// kindEdges returns requests for every kind, in the most important forms.
func (w *comparedCluster) kindEdges() []request {
	var out []request
	for _, r := range w.catalogue.all {
		if !r.mirrored {
			out = append(out, request{Category: "other versions", URI: r.path(), Accept: jsonAccept},
				request{Category: "other versions", URI: r.path(), Accept: tableAccept})
			continue
		}
		for _, accept := range []string{jsonAccept, protobufAccept, tableAccept, metadataAccept} {
			out = append(out, request{Category: "every kind", URI: r.path(), Accept: accept})
		}
		out = append(out, request{
			Category: "every kind", URI: r.path() + "?includeObject=Object&limit=2", Accept: tableAccept,
		})
		one := w.uids["one:"+r.path()]
		if one == "" {
			continue
		}
		for _, accept := range []string{jsonAccept, "application/yaml", protobufAccept, tableAccept, objectAccept} {
			out = append(out, request{Category: "every kind", URI: one, Accept: accept})
		}
		for _, name := range r.below {
			out = append(out, subresourceEdges(one, name)...)
		}
	}
	for i := range out {
		out[i].Method = http.MethodGet
	}
	return out
}

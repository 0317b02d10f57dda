// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package query answers HTTP requests from the objects that a program keeps: those of a
// [watershed.Factory] or of a [fleet.Fleet]. It has the routes that most programs write
// by hand beside an informer.
//
//	h, err := query.NewFactory(factory, query.Resources{
//		corev1.SchemeGroupVersion.WithResource("pods"):        {"app": byApp},
//		appsv1.SchemeGroupVersion.WithResource("deployments"): nil,
//	}, nil)
//	mux.Handle("/query/", http.StripPrefix("/query", h))       // net/http
//	router.Any("/query/*path", gin.WrapH(http.StripPrefix("/query", h))) // gin
//
// # Requests
//
//	GET /pods                                            all pods
//	GET /pods?namespace=shop&labelSelector=app%3Dweb     some of them, by namespace and labels
//	GET /pods?index=app&value=mysql                      some of them, by an index
//	GET /pods?index=app&value=mysql&keys=true            only their keys
//	GET /deployments.apps/shop/web                       one object
//	GET /nodes/node-7                                    one object without a namespace
//	GET /pods?cluster=eu                                 one cluster of a fleet
//	GET /pods/shop/web?cluster=eu                        one object of a fleet
//
// A resource is named as kubectl names it in full, "pods" or "deployments.apps". All
// conditions of a request must hold. The response to a list is
//
//	{"keys":["shop/web-1","shop/web-2"],"continue":"shop/web-2","items":[{…},{…}]}
//
// in the order of the keys. It has at most limit=N objects, see [Options]. If there are
// more, it contains "continue": the same request with continue=shop/web-2 returns those
// that follow. It reads the state at that time, and no state is kept between two
// requests: an object that is created or deleted meanwhile may be missing, an object that
// exists all the time is not. The keys of a fleet begin with the cluster, "eu/shop/web-1",
// and the response names the clusters that could not be read yet, as "missing":["us"].
//
// An object is the JSON that its API server would send for it, with apiVersion and kind.
// It is not decoded. Fields that the options of the factory or fleet drop or transform are
// as they are kept. A factory that receives a resource in protobuf cannot return fields
// that are newer than the program's k8s.io/api. A fleet can, and so can a factory
// whose first lease of the resource is for *unstructured.Unstructured.
//
// An error is {"error":"…"} with one of these codes:
//
//	400  a parameter is unknown, malformed or too large, or names an unknown index
//	404  the resource, cluster or object is unknown
//	405  the method is not GET or HEAD
//	500  the object cannot be written as JSON
//	503  the resource has not been read completely yet; the client may retry
//
// # Freshness
//
// A response is made from a copy. Its header Watershed-Age is the time since the API
// server last sent something for the resource, for example "12.5s". A healthy watch is
// silent for at most a minute. For several clusters it is that of the cluster that has been
// silent longest. If a copy is known not to be current, because its cluster cannot be
// reached, the response has a header Warning: 299 with the cluster, the time since when and
// the reason. Another warning names the clusters that are missing. A response has at most
// twelve warnings of 256 bytes. A 404 for an object has these headers too. The headers are
// those of package replica.
//
// # Objects that cannot be written
//
// An object in protobuf that is malformed, or whose kind has no Go type, cannot be written
// as JSON. It is never left out of a list. The list ends before it, with "continue", and
// the request for the rest fails with
//
//	{"error":"pods \"shop/bad\" cannot be written as JSON, …","continue":"shop/bad"}
//
// A client that can do without the object continues from there, as after any page. The
// cause is not in the response, because it may repeat a part of the object. It is logged
// once for each state of the object, see [Options]. Requests with keys=true, and those
// whose label selector does not select the object, are not affected.
//
// # Access
//
// There is no access control. Every client that can send a request can read all objects of
// the resources that the program has named, whatever the rights in the cluster are. A handler
// for secrets is possible, so name resources with care. Wrap the handler in the program's
// own middleware for authentication, authorization, compression and limits of
// concurrent requests.
//
// Package replica is for clients of the Kubernetes API: kubectl, client-go, watches,
// tables, discovery and hooks for access control. This package is for a few lines in a
// program that has other routes too, and for clients that have curl. Its paths are its own.
//
// # What blocks
//
// A request reads a snapshot and waits for nothing but its client. It does not reach an API
// server.
//
// # Bounds and ownership
//
// A client cannot make the program keep more objects: only named resources are served. A
// factory keeps each of them from [NewFactory] until [Handler.Close], whether they are
// queried or not, in the copy that it shares with the program's other leases. An index
// costs 120 bytes for each value of an object. A response is made in memory, and has at
// most [Options].Limit objects and about [Options].Bytes bytes. A list examines the objects of the
// namespace, or those with the value of the index in it, from the key of continue on, at some
// 100 ns each if there is a label selector, until the response is full. The first of them is
// found in O(log n), on the last page too. The headers need the state of each cluster's
// connection.
package query

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// headlampPaths are the lists that the pages of Headlamp read, and some objects.
var headlampPaths = []string{
	"/version", "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods", "/api/v1/pods?labelSelector=app%3Dweb",
	"/api/v1/services", "/api/v1/configmaps", "/api/v1/secrets",
	"/api/v1/events?limit=2000", "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims",
	"/api/v1/serviceaccounts", "/api/v1/endpoints", "/api/v1/resourcequotas", "/api/v1/limitranges",
	"/apis/apps/v1/deployments", "/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/apps/v1/replicasets",
	"/apis/batch/v1/jobs", "/apis/batch/v1/cronjobs",
	"/apis/autoscaling/v2/horizontalpodautoscalers", "/apis/policy/v1/poddisruptionbudgets",
	"/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/networkpolicies",
	"/apis/storage.k8s.io/v1/storageclasses", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"/apis/rbac.authorization.k8s.io/v1/rolebindings",
	"/apis/coordination.k8s.io/v1/leases", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"/apis/example.com/v1/widgets", "/apis/metrics.k8s.io/v1beta1/nodes",
	"/apis", "/apis/apps/v1", "/api/v1/namespaces/shop/pods/db-0", "/apis/apps/v1/namespaces/shop/deployments/web",
	"/apis/apps/v1/namespaces/shop/deployments/web/scale",
	"/api/v1/namespaces/shop/pods/db-0/log?container=main&tailLines=5", "/api/v1/namespaces/shop/pods/nothing",
}

// backend is headlamp-server on one side.
type backend struct {
	address, token string
}

// headlamp compares requests, watches and terminals through the server behind Headlamp's
// pages. The token of the user is in a cookie, as in a browser.
func headlamp(t *testing.T, w *comparedCluster) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	backends := map[*side]*backend{}
	for _, s := range w.sides() {
		port := strconv.Itoa(freePort(t))
		start(t, w.program("headlamp-server"), "-kubeconfig", s.kubeconfig, "-listen-addr", "127.0.0.1", "-port", port,
			"-plugins-dir", t.TempDir(), "-enable-helm")
		backends[s] = &backend{address: "127.0.0.1:" + port, token: s.config.BearerToken}
	}
	send := func(method, path, body string) reading {
		return func(ctx context.Context, s *side) (string, error) { return backends[s].send(ctx, method, path, body) }
	}
	for _, path := range headlampPaths {
		w.compare(t, path, "", send(http.MethodGet, "/clusters/one"+path, ""))
	}
	w.compare(t, "releases", "200", send(http.MethodGet, "/clusters/one/helm/releases/list?all=true", ""))
	w.compare(t, "access review", `"allowed": true`,
		send(http.MethodPost, "/clusters/one/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"delete","resource":"pods","namespace":"shop"}}}`))
	w.compare(t, "rules review", "resourceRules",
		send(http.MethodPost, "/clusters/one/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"shop"}}`))
	w.compare(t, "patch", `"example.com/by": "headlamp"`,
		send(http.MethodPatch, "/clusters/one/apis/apps/v1/namespaces/shop/deployments/web",
			`{"metadata":{"annotations":{"example.com/by":"headlamp"}}}`))
	w.compare(t, "read after the patch", `"example.com/by": "headlamp"`,
		send(http.MethodGet, "/clusters/one/apis/apps/v1/namespaces/shop/deployments/web", ""))
	w.compare(t, "terminal", "hello", func(ctx context.Context, s *side) (string, error) {
		return backends[s].exec(ctx)
	})
	for name, watch := range map[string]func(*backend, context.Context) (*websocket.Conn, error){
		"watch": (*backend).watch, "multiplexed watch": (*backend).multiplex,
	} {
		w.compare(t, name, "MODIFIED db-0", func(ctx context.Context, s *side) (string, error) {
			return watched(ctx, w, func() (*websocket.Conn, error) { return watch(backends[s], ctx) })
		})
	}
}

// send returns the status and the body of a response.
func (b *backend) send(ctx context.Context, method, path, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+b.address+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Cookie", b.cookie())
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	} else if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d\n%s", answer.StatusCode, canonical(string(text))), err
}

func (b *backend) cookie() string { return "headlamp-auth-" + clusterName + ".0=" + b.token }

// canonical returns a JSON document with sorted keys. A list is without its version, which
// may differ between servers, and without an empty continue token. A review is without
// metadata, since only kube-apiserver returns its managed fields.
func canonical(document string) string {
	var object map[string]any
	exact := json.NewDecoder(strings.NewReader(document))
	exact.UseNumber()
	if err := exact.Decode(&object); err != nil {
		return document
	}
	if metadata, ok := object["metadata"].(map[string]any); ok && object["items"] != nil {
		delete(metadata, "resourceVersion")
		if metadata["continue"] == "" {
			delete(metadata, "continue")
		}
	}
	if kind, _ := object["kind"].(string); strings.HasSuffix(kind, "Review") {
		delete(object, "metadata")
	}
	sorted, err := json.Marshal(object)
	if err != nil {
		return document
	}
	return indented(string(sorted))
}

// dial opens a WebSocket to the backend.
func (b *backend) dial(ctx context.Context, path string, protocols ...string) (*websocket.Conn, error) {
	config, err := websocket.NewConfig("ws://"+b.address+path, "http://"+b.address)
	if err != nil {
		return nil, err
	}
	config.Header.Set("Cookie", b.cookie())
	config.Protocol = protocols
	ws, err := config.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return ws, ws.SetDeadline(time.Now().Add(settling / 4))
}

// exec runs a command in a container and returns its output, with the number of the channel
// before each message.
func (b *backend) exec(ctx context.Context) (string, error) {
	ws, err := b.dial(ctx,
		"/clusters/one/api/v1/namespaces/shop/pods/db-0/exec?container=main&command=echo&command=hello&stdout=1&stderr=1", "v4.channel.k8s.io")
	if err != nil {
		return "", err
	}
	defer ws.Close()
	var shown strings.Builder
	for {
		var message []byte
		if err := websocket.Message.Receive(ws, &message); errors.Is(err, io.EOF) {
			return shown.String(), nil
		} else if err != nil {
			return "", err
		}
		if len(message) > 0 {
			fmt.Fprintf(&shown, "%d %s\n", message[0], message[1:])
		}
	}
}

const watchQuery = "watch=1&fieldSelector=metadata.name%3Ddb-0"

func (b *backend) watch(ctx context.Context) (*websocket.Conn, error) {
	return b.dial(ctx, "/clusters/one/api/v1/namespaces/shop/pods?"+watchQuery)
}

// multiplex opens a watch through the connection that Headlamp uses for all its watches.
func (b *backend) multiplex(ctx context.Context) (*websocket.Conn, error) {
	ws, err := b.dial(ctx, "/wsMultiplexer")
	if err != nil {
		return nil, err
	}
	return ws, websocket.JSON.Send(ws, map[string]string{
		"clusterId": clusterName, "userId": "somebody", "path": "/api/v1/namespaces/shop/pods", "query": watchQuery,
		"type": "REQUEST",
	})
}

// watched opens a watch of a pod, changes the pod after the first event, and returns the
// types and names of the events up to that change.
func watched(ctx context.Context, w *comparedCluster, open func() (*websocket.Conn, error)) (string, error) {
	ws, err := open()
	if err != nil {
		return "", err
	}
	defer ws.Close()
	changed, mark := false, strconv.FormatInt(time.Now().UnixNano(), 10)
	var shown []string
	// A message can have several frames, which a decoder reads as one stream.
	messages := json.NewDecoder(ws)
	for {
		e, err := receiveEvent(messages)
		if err != nil {
			return "", fmt.Errorf("after %v: %w", shown, err)
		}
		if e.Type == "" {
			continue
		}
		line := e.Type + " " + e.Object.Metadata.Name
		if len(shown) == 0 || shown[len(shown)-1] != line {
			shown = append(shown, line)
		}
		if e.Object.Metadata.Annotations["example.com/mark"] == mark {
			return strings.Join(shown, "\n"), nil
		}
		if !changed {
			changed = true
			if _, err := w.cluster.Kubectl(ctx, "annotate", "--overwrite", "pod", "db-0", "-n", "shop",
				"example.com/mark="+mark); err != nil {
				return "", err
			}
		}
	}
}

type watchEvent struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"object"`
}

// receiveEvent returns the event of a message. The type is empty if the message is about the
// state of a multiplexed connection.
func receiveEvent(messages *json.Decoder) (e watchEvent, err error) {
	var message json.RawMessage
	if err := messages.Decode(&message); err != nil {
		return e, err
	}
	var envelope struct {
		Path, Type, Data string
	}
	if err := json.Unmarshal(message, &envelope); err != nil {
		return e, err
	}
	if envelope.Path == "" {
		return e, json.Unmarshal(message, &e)
	}
	if envelope.Type != "DATA" {
		return e, nil
	}
	return e, json.Unmarshal([]byte(envelope.Data), &e)
}

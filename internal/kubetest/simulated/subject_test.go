// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// start returns a simulated server for the duration of a test.
func start(tb testing.TB, opts *simulated.Options) *simulated.Server {
	tb.Helper()
	s, err := simulated.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// subject is a server that receives requests.
type subject struct {
	name string
	base string
	http *http.Client
	// vars are the values of {now} and other variables in requests.
	vars map[string]string
}

func newSubject(tb testing.TB, name string, cfg *rest.Config) *subject {
	tb.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true // the test checks the bytes as they are sent
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return &subject{name: name, base: cfg.Host, http: client, vars: map[string]string{}}
}

// request is one request, whose target may contain variables.
type request struct {
	method string // GET if empty
	target string
	accept string
	token  string // instead of the subject's
	gzip   bool
	// begun receives a value when the response begins, unless it is nil; with initial events, when the first
	// one arrives, because the state that the watch begins with is chosen by then. It must have room for that.
	begun chan<- struct{}
}

// The media types in which objects are requested.
const (
	asJSON         = "application/json"
	asProtobuf     = "application/vnd.kubernetes.protobuf"
	partialList    = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	partialObject  = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	initialEvents  = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// begin sends a request. The caller must close the body.
func (s *subject) begin(ctx context.Context, r request) (*http.Response, error) {
	req, err := s.request(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.http.Do(req)
}

func (s *subject) request(ctx context.Context, r request) (*http.Request, error) {
	target := r.target
	for name, value := range s.vars {
		target = strings.ReplaceAll(target, "{"+name+"}", value)
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.base+target, nil)
	if err != nil {
		return nil, err
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	return req, nil
}

// answer is a decoded response.
type answer struct {
	Code   int
	Header map[string]string
	Body   any
}

// ask sends a request and reads the response.
func (s *subject) ask(tb testing.TB, r request) answer {
	tb.Helper()
	a, err := s.answer(tb.Context(), r)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// answerTimeout is how long a response may take.
const answerTimeout = time.Minute

func (s *subject) answer(ctx context.Context, r request) (a answer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", s.name, r.target, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := s.begin(ctx, r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	arriving := bufio.NewReader(resp.Body)
	if r.begun != nil {
		if strings.Contains(r.target, "sendInitialEvents") {
			_, _ = arriving.Peek(1) // ReadAll returns its error
		}
		r.begun <- struct{}{}
	}
	a = answer{Code: resp.StatusCode, Header: map[string]string{}}
	for _, name := range []string{
		"Content-Type", "Content-Encoding", "Vary", "Cache-Control", "Retry-After", "X-Content-Type-Options",
	} {
		if v := resp.Header.Values(name); len(v) > 0 {
			a.Header[name] = strings.Join(v, "|")
		}
	}
	body, err := io.ReadAll(arriving)
	if err == nil && len(body) > 0 && resp.Header.Get("Content-Encoding") == "gzip" {
		body, err = unzip(body)
	}
	if err == nil {
		a.Body, err = decode(body, resp.Header.Get("Content-Type"))
	}
	return a, err
}

func unzip(body []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// decode converts a body to maps and lists, and that of a watch to a list of its events.
func decode(body []byte, contentType string) (any, error) {
	switch {
	case strings.HasPrefix(contentType, "text/plain"):
		return string(body), nil
	case strings.HasPrefix(contentType, asProtobuf+";stream=watch"):
		return decodeFrames(body)
	case strings.HasPrefix(contentType, asProtobuf):
		return decodeProtobuf(body)
	}
	var all []any
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

func decodeFrames(body []byte) (any, error) {
	var all []any
	for len(body) > 0 {
		if len(body) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := int(binary.BigEndian.Uint32(body))
		if body = body[4:]; len(body) < n {
			return nil, io.ErrUnexpectedEOF
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(body[:n]); err != nil {
			return nil, err
		}
		obj, err := decodeProtobuf(e.Object.Raw)
		if err != nil {
			return nil, err
		}
		all = append(all, map[string]any{"type": e.Type, "object": obj.([]any)[0]})
		body = body[n:]
	}
	return all, nil
}

// decodeProtobuf decodes an object in its envelope. Objects of kinds that the test does
// not know are decoded as metadata, which all kinds have in the same field.
func decodeProtobuf(body []byte) (any, error) {
	var u runtime.Unknown
	if !bytes.HasPrefix(body, []byte("k8s\x00")) {
		return nil, fmt.Errorf("no envelope: %q", body)
	}
	if err := u.Unmarshal(body[4:]); err != nil {
		return nil, err
	}
	var obj interface{ Unmarshal([]byte) error }
	switch {
	case u.Kind == "Pod":
		obj = &corev1.Pod{}
	case u.Kind == "PodList":
		obj = &corev1.PodList{}
	case u.Kind == "Namespace":
		obj = &corev1.Namespace{}
	case u.Kind == "NamespaceList":
		obj = &corev1.NamespaceList{}
	case u.Kind == "Status":
		obj = &metav1.Status{}
	case strings.HasSuffix(u.Kind, "List"):
		obj = &metav1.PartialObjectMetadataList{}
	default:
		obj = &metav1.PartialObjectMetadata{}
	}
	if err := obj.Unmarshal(u.Raw); err != nil {
		return nil, err
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	m["kind"], m["apiVersion"] = u.Kind, u.APIVersion
	return []any{m}, nil
}

var digits = regexp.MustCompile(`\d+`)

// normal removes from a decoded body what differs between two servers: versions, and
// objects that only a real server has.
func normal(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			if ours(e) {
				out = append(out, normal(e))
			}
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			text, isText := e.(string)
			switch {
			case key == "items" && e == nil:
				e = []any{} // null and an empty list are the same
			case key == "continue" && text == "":
				continue // as in untyped lists
			case key == "resourceVersion" && isText:
				e = "#"
			case key == "continue" && isText:
				e = normalToken(text)
			case key == "message" && isText:
				e = digits.ReplaceAllString(text, "#")
			default:
				e = normal(e)
			}
			out[key] = e
		}
		return out
	default:
		return v
	}
}

func normalToken(token string) string {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	return regexp.MustCompile(`"rv":\d+`).ReplaceAllString(string(text), `"rv":#`)
}

// ours reports whether an element of a list, or an event, is to be compared. It is not if
// it concerns an object that only a real server has, or is a bookmark that was sent
// because of the time.
func ours(e any) bool {
	m, ok := e.(map[string]any)
	if !ok {
		return true
	}
	if m["type"] == "BOOKMARK" && field(m, "object", "metadata", "annotations") == nil {
		return false
	}
	if obj, ok := m["object"].(map[string]any); ok {
		m = obj
	}
	meta, _ := m["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name == "" || strings.HasPrefix(name, "team-") || strings.HasPrefix(name, "service-")
}

// metaOf returns the metadata of a list.
func metaOf(a answer) map[string]any {
	docs, _ := a.Body.([]any)
	if len(docs) != 1 {
		return nil
	}
	meta, _ := docs[0].(map[string]any)["metadata"].(map[string]any)
	return meta
}

// items returns the items of a list.
func items(a answer) []any {
	docs, _ := a.Body.([]any)
	if len(docs) != 1 {
		return nil
	}
	list, _ := docs[0].(map[string]any)["items"].([]any)
	return list
}

// field returns the value at a path of a decoded object.
func field(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func rawToken(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// answering returns a cluster whose server always sends one response: one that a real
// server cannot be made to send, or that a proxy in front of it sends.
func answering(t *testing.T, code int, header http.Header, body string) *kube.Cluster {
	t.Helper()
	return handling(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
}

func handling(t *testing.T, handle http.HandlerFunc) *kube.Cluster {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	return open(t, &rest.Config{Host: server.URL})
}

func jsonStatus(t *testing.T, status metav1.Status) string {
	t.Helper()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure
	b, err := runtime.Encode(scheme.Codecs.LegacyCodec(), &status)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func protobufStatus(t *testing.T, status metav1.Status) string {
	t.Helper()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&status, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestErrors_haveReasons(t *testing.T) {
	asJSON := http.Header{"Content-Type": {"application/json"}}
	asText := http.Header{"Content-Type": {"text/plain"}}
	after := func(value string) http.Header {
		return http.Header{"Content-Type": {"application/json"}, "Retry-After": {value}}
	}
	busy := metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "too many"}
	seconds := &metav1.StatusDetails{RetryAfterSeconds: 3}
	for name, test := range map[string]struct {
		code   int
		header http.Header
		body   string
		want   reflector.Reason
		// watch is the reason for a watch with initial events, if it differs.
		watch reflector.Reason
		after time.Duration
		is    func(error) bool
		text  string
	}{
		"429": {
			code:   429,
			header: after("7"),
			body:   jsonStatus(t, busy),
			want:   reflector.Busy,
			after:  7 * time.Second,
			is:     apierrors.IsTooManyRequests,
			text:   "too many",
		},
		"429 protobuf": {
			code:   429,
			header: http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf"}},
			body: protobufStatus(t, metav1.Status{
				Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "too many", Details: seconds,
			}),
			want:  reflector.Busy,
			after: 3 * time.Second,
			is:    apierrors.IsTooManyRequests,
			text:  "too many",
		},
		"429 of a proxy": {
			code: 429, header: asText, body: "slow down", want: reflector.Busy, is: apierrors.IsTooManyRequests,
		},
		"429 with a date": {
			code:   429,
			header: after(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)),
			body:   jsonStatus(t, busy),
			want:   reflector.Busy,
			after:  time.Hour,
		},
		"429 with a past date": {
			code: 429, header: after("Mon, 02 Jan 2006 15:04:05 GMT"), body: jsonStatus(t, busy), want: reflector.Busy,
		},
		"503": {
			code: 503, header: asText, body: "no backend", want: reflector.Unknown, is: apierrors.IsServiceUnavailable,
		},
		"503 with a time": {code: 503, header: after("1"), want: reflector.Busy, after: time.Second},
		"503 with details": {
			code:   503,
			header: asJSON,
			body: jsonStatus(t, metav1.Status{
				Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Details: seconds,
			}),
			want:  reflector.Busy,
			after: 3 * time.Second,
		},
		"502 of a proxy": {
			code:   502,
			header: http.Header{"Content-Type": {"text/html"}},
			body:   "<html>Bad Gateway",
			want:   reflector.Unknown,
			text:   "<html>Bad Gateway",
		},
		"500": {
			code:   500,
			header: asJSON,
			body: jsonStatus(t, metav1.Status{
				Code: 500, Reason: metav1.StatusReasonInternalError, Message: "etcd is gone",
			}),
			want: reflector.Internal,
			text: "etcd is gone",
		},
		"500 of another kind": {
			code:   500,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 500, Reason: metav1.StatusReasonServerTimeout, Details: seconds}),
			want:   reflector.Unknown,
			after:  3 * time.Second,
		},
		"410": {
			code:   410,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired}),
			want:   reflector.Expired,
		},
		"410 gone": {
			code:   410,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 410, Reason: metav1.StatusReasonGone}),
			want:   reflector.Expired,
		},
		"410 of a proxy": {code: 410, want: reflector.Expired},
		"504 too large": {
			code:   504,
			header: after("1"),
			body: jsonStatus(t, metav1.Status{
				Code:   504,
				Reason: metav1.StatusReasonTimeout,
				Details: &metav1.StatusDetails{
					Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}},
				},
			}),
			want:  reflector.TooLarge,
			after: time.Second,
		},
		"504 too large, old": {
			code:   504,
			header: asJSON,
			body: jsonStatus(t, metav1.Status{
				Code: 504, Reason: metav1.StatusReasonTimeout, Message: "Too large resource version: 5, current: 3",
			}),
			want: reflector.TooLarge,
		},
		"504": {
			code: 504, header: asText, body: "upstream timed out", want: reflector.Unknown, is: apierrors.IsTimeout,
		},
		"404 page": {
			code:   404,
			header: asText,
			body:   "404 page not found\n",
			want:   reflector.NotServed,
			is:     apierrors.IsNotFound,
		},
		"404 status": {
			code:   404,
			header: asJSON,
			body: jsonStatus(t, metav1.Status{
				Code:    404,
				Reason:  metav1.StatusReasonNotFound,
				Message: "the server could not find the requested resource",
				Details: &metav1.StatusDetails{},
			}),
			want: reflector.NotServed,
		},
		"404 of a name": {
			code:   404,
			header: asJSON,
			body: jsonStatus(t, metav1.Status{
				Code:    404,
				Reason:  metav1.StatusReasonNotFound,
				Details: &metav1.StatusDetails{Kind: "clusters", Name: "c1"},
			}),
			want: reflector.Unknown,
			is:   apierrors.IsNotFound,
		},
		"404 of a web server": {
			code: 404, header: asText, body: "<h1>Not Found</h1>", want: reflector.Unknown, is: apierrors.IsNotFound,
		},
		"422": {
			code:   422,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid}),
			want:   reflector.Unknown,
			watch:  reflector.NotSupported,
		},
		"400": {
			code:   400,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 400, Reason: metav1.StatusReasonBadRequest}),
			want:   reflector.Unknown,
			watch:  reflector.NotSupported,
		},
		"401": {
			code:   401,
			header: asJSON,
			body:   jsonStatus(t, metav1.Status{Code: 401, Reason: metav1.StatusReasonUnauthorized}),
			want:   reflector.Unknown,
			is:     apierrors.IsUnauthorized,
		},
		"success that is not": {
			code:   409,
			header: asJSON,
			body:   `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
			want:   reflector.Unknown,
			is:     apierrors.IsConflict,
		},
		"without a code": {
			code:   429,
			header: asJSON,
			body:   `{"kind":"Status","apiVersion":"v1","status":"Failure"}`,
			want:   reflector.Busy,
		},
		"a redirect to naught": {code: 304, want: reflector.Unknown},
		"much text":            {code: 502, header: asText, body: strings.Repeat("é", 1<<20), want: reflector.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := sourceOf(t, answering(t, test.code, test.header, test.body), kube.Query{Resource: pods})
			_, listErr := s.List(t.Context(), reflector.ListOptions{}, func(*wire.Object) error { return nil })
			_, watchErr := s.Watch(t.Context(), reflector.WatchOptions{InitialEvents: true})
			if test.watch == reflector.Unknown {
				test.watch = test.want
			}
			for verb, err := range map[string]error{"list": listErr, "watch": watchErr} {
				want := test.want
				if verb == "watch" {
					want = test.watch
				}
				after := wantReason(t, verb, err, want)
				if after > test.after || after < test.after-10*time.Second {
					t.Errorf("%s: retry after %s, want %s", verb, after, test.after)
				}
				var status *apierrors.StatusError
				if !errors.As(err, &status) || status.ErrStatus.Code != int32(test.code) {
					t.Errorf("%s: %v has no status %d", verb, err, test.code)
				}
				if test.is != nil && !test.is(err) {
					t.Errorf("%s: %v is not what apierrors knows as %s", verb, err, name)
				}
				if !strings.HasPrefix(err.Error(), verb+" pods in test: ") ||
					!strings.Contains(err.Error(), test.text) || len(err.Error()) > 2000 {
					t.Errorf("%s: the error says %q", verb, err)
				}
			}
		})
	}
}

// TestServed_saysWhatItKnows checks that only a "not found" from the API server itself
// counts as not served.
func TestServed_saysWhatItKnows(t *testing.T) {
	page := answering(t, 404, nil, "404 page not found\n")
	if served, err := sourceOf(t, page, kube.Query{Resource: nonsense}).Served(t.Context()); err != nil || served {
		t.Errorf("%t, %v", served, err)
	}
	for _, c := range []*kube.Cluster{
		answering(t, 404, nil, "<h1>Not Found</h1>"),
		answering(t, 503, nil, ""),
		answering(t, 200, nil, "<h1>Welcome</h1>"),
	} {
		if served, err := sourceOf(t, c, kube.Query{Resource: nonsense}).Served(t.Context()); err == nil || served {
			t.Errorf("%t, %v, want an error", served, err)
		}
	}
}

func TestAnswers_ofOtherKinds(t *testing.T) {
	for _, kind := range []string{"", "text/html", "application/cbor", "application/json-seq", ";"} {
		s := sourceOf(t, answering(t, 200, http.Header{"Content-Type": {kind}}, "{}"), kube.Query{Resource: pods})
		_, err := s.List(t.Context(), reflector.ListOptions{}, func(*wire.Object) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "neither JSON nor protobuf") {
			t.Errorf("list of %q: %v", kind, err)
		}
		if w, err := s.Watch(t.Context(), reflector.WatchOptions{}); err == nil || w != nil {
			t.Errorf("watch of %q: %v, %v", kind, w, err)
		}
	}
}

const (
	goodPod = `{"metadata":{"name":"good","namespace":"default","resourceVersion":"5"}}`
	badPod  = `{"metadata":{"namespace":"default","resourceVersion":"6"}}`
)

// TestUndecodable checks that objects that cannot be read are reported, and that the rest
// arrives.
func TestUndecodable(t *testing.T) {
	const event = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",`
	c := handling(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json;stream=watch;charset=utf-8")
		if r.URL.Query().Has("watch") {
			_, _ = w.Write([]byte(event + badPod[1:] + "}\n" + event + goodPod[1:] + "}\n"))
			_, _ = w.Write([]byte(`{"type":"ERROR","object":` + jsonStatus(t, metav1.Status{
				Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old",
			}) + `}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[` +
			badPod + "," + goodPod + "," + badPod + `]}`))
	})
	q := kube.Query{Resource: pods}
	s := sourceOf(t, c, q)
	var got []string
	page, err := s.List(t.Context(), reflector.ListOptions{}, func(o *wire.Object) error {
		got = append(got, o.Key())
		return nil
	})
	if err != nil || len(page.Skipped) != 2 || page.Version != "9" || len(got) != 1 {
		t.Errorf("listed %v, %+v, %v", got, page, err)
	}
	version, err := c.List(t.Context(), q, func(*wire.Object) error { return nil })
	wantReason(t, "small client's list", err, reflector.Undecodable)
	if version != "9" || !strings.Contains(err.Error(), "left out: 2") {
		t.Errorf("listed at %q: %v", version, err)
	}

	w := beginWatch(t.Context(), t, s, reflector.WatchOptions{})
	if e, err := w.Next(); reflector.ReasonOf(err) != reflector.Undecodable || e.Type != delta.Added ||
		e.Version != "6" || e.Object != nil {
		t.Errorf("an event without a name: %+v, %v", e, err)
	}
	var reasons []reflector.Reason
	var keys []string
	for e, err := range c.Watch(t.Context(), q, "9") {
		if err != nil {
			reasons = append(reasons, reflector.ReasonOf(err))
		} else {
			keys = append(keys, e.Object.Key())
		}
	}
	if len(reasons) != 2 || reasons[0] != reflector.Undecodable || reasons[1] != reflector.Expired || len(keys) != 1 ||
		keys[0] != "default/good" {
		t.Errorf("watched %v with errors %v", keys, reasons)
	}
}

// TestErrorBody_isNotWaitedFor checks that reading an endless error response ends with
// the context.
func TestErrorBody_isNotWaitedFor(t *testing.T) {
	over := make(chan struct{})
	c := handling(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_ = http.NewResponseController(w).Flush()
		<-over
	})
	defer close(over)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := sourceOf(t, c, kube.Query{Resource: pods}).List(ctx, reflector.ListOptions{}, func(*wire.Object) error {
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestSource_getRefused has the meaning of each refusal of a get for a reflector that compares
// stored objects: only a server that names the object does not have it.
func TestSource_getRefused(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, name string) string {
		return jsonStatus(t, metav1.Status{
			Code: code, Reason: reason, Details: &metav1.StatusDetails{Name: name, Kind: "pods"},
		})
	}
	for name, tt := range map[string]struct {
		code   int
		body   string
		absent bool
		reason reflector.Reason
	}{
		"absent":      {http.StatusNotFound, status(404, metav1.StatusReasonNotFound, "web"), true, reflector.Unknown},
		"no resource": {http.StatusNotFound, status(404, metav1.StatusReasonNotFound, ""), false, reflector.Unknown},
		"no path":     {http.StatusNotFound, "404 page not found", false, reflector.Unknown},
		"a proxy":     {http.StatusNotFound, "<html>", false, reflector.Unknown},
		"forbidden": {
			http.StatusForbidden, status(403, metav1.StatusReasonForbidden, "web"), false, reflector.NotSupported,
		},
		"no such verb": {
			http.StatusMethodNotAllowed, status(405, metav1.StatusReasonMethodNotAllowed, "web"), false,
			reflector.NotSupported,
		},
		"busy": {
			http.StatusTooManyRequests, status(429, metav1.StatusReasonTooManyRequests, "web"), false, reflector.Busy,
		},
		"internal": {
			http.StatusInternalServerError, status(500, metav1.StatusReasonInternalError, "web"), false,
			reflector.Internal,
		},
	} {
		c := answering(t, tt.code, http.Header{"Content-Type": {"application/json"}}, tt.body)
		uid, version, err := sourceOf(t, c, kube.Query{Resource: pods}).Get(t.Context(), "shop/web")
		if (err == nil) != tt.absent || uid+version != "" || reflector.ReasonOf(err) != tt.reason {
			t.Errorf("%s: UID %q, version %q, %v with reason %s", name, uid, version, err, reflector.ReasonOf(err))
		}
	}
}

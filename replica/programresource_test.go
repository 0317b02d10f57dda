// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// ownResources are two reviews. The first allows everything but namespace "no".
func programResources() []ProgramResource {
	return []ProgramResource{{
		GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"),
		Kind:                 "SelfSubjectAccessReview", Singular: "selfsubjectaccessreview",
		New: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
		Create: func(_ *http.Request, q *Request, o runtime.Object) (runtime.Object, error) {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			if review.Spec.ResourceAttributes == nil {
				return nil, apierrors.NewServiceUnavailable("the cluster " + q.Cluster + " does not answer")
			}
			review.Status.Allowed = review.Spec.ResourceAttributes.Namespace != "no"
			return review, nil
		},
	}, {
		GroupVersionResource: authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"),
		Kind:                 "SelfSubjectReview", Singular: "selfsubjectreview", Fleet: true,
		New: func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
		Create: func(r *http.Request, _ *Request, o runtime.Object) (runtime.Object, error) {
			review := o.(*authenticationv1.SelfSubjectReview)
			review.Status.UserInfo.Username = r.Header.Get("X-User")
			return review, nil
		},
	}}
}

const (
	accessPath   = "/clusters/one/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	identityPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// withReviews lets a cluster serve reviews, except for selfsubjectrulesreviews.
func withReviews(w *pipedReplica) {
	w.options.ProgramResources = programResources()
	w.origins["one"].answers(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		group := func(name string) string {
			return fmt.Sprintf(
				`{"name":%q,"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}],"preferredVersion":{"groupVersion":"%[1]s/v1","version":"v1"}}`, name,
			)
		}
		list := func(group string, names ...string) {
			var all []string
			for _, name := range names {
				all = append(all, fmt.Sprintf(
					`{"name":%q,"singularName":"","namespaced":false,"kind":"K","verbs":["create"]}`, name,
				))
			}
			_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","groupVersion":"%s/v1","resources":[%s]}`, group,
				strings.Join(all, ","))
		}
		switch r.URL.Path {
		case "/apis":
			_, _ = io.WriteString(w,
				`{"kind":"APIGroupList","apiVersion":"v1","groups":[`+group("authentication.k8s.io")+","+
					group("authorization.k8s.io")+`]}`)
		case "/apis/authentication.k8s.io/v1":
			list("authentication.k8s.io", "tokenreviews", "selfsubjectreviews")
		case "/apis/authorization.k8s.io/v1":
			list("authorization.k8s.io", "selfsubjectaccessreviews", "subjectaccessreviews")
		default:
			return false
		}
		return true
	})
}

// post sends a body, and returns the code, the headers and the body of the response.
func (w *pipedReplica) post(path, body string, header ...string) (int, http.Header, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://replica"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatalf("POST %s: %v", path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// Own resources are listed where the cluster has them, and below /fleet where they are meant
// to be.
func TestOwn_isListed(t *testing.T) {
	inMemory(t, []string{"one", "two"}, withReviews, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		const verbs = `"verbs":["create"]`
		for path, want := range map[string][]string{
			"/clusters/one/apis": {
				`"name":"authentication.k8s.io"`, `"name":"authorization.k8s.io"`,
			},
			"/clusters/one/apis/authorization.k8s.io/v1": {
				`{"name":"selfsubjectaccessreviews","singularName":"selfsubjectaccessreview","namespaced":false,"kind":"SelfSubjectAccessReview",` + verbs + `}`,
			},
			"/fleet/apis":                                {`"name":"authentication.k8s.io"`},
			"/fleet/apis/authentication.k8s.io/v1":       {`"name":"selfsubjectreviews"`, verbs},
			"/fleet/apis/authorization.k8s.io/v1":        nil,
			"/clusters/two/apis/authorization.k8s.io/v1": nil,
		} {
			code, _, body := w.get(path)
			if (code == http.StatusOK) != (want != nil) || strings.Contains(body, "tokenreviews") ||
				strings.Contains(body, `"subjectaccessreviews`) {
				t.Errorf("%s: %d %s", path, code, body)
			}
			for _, text := range want {
				if !strings.Contains(body, text) {
					t.Errorf("%s has no %s: %s", path, text, body)
				}
			}
		}
		_, _, body := w.get("/clusters/one/apis", "Accept",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		if want := `{"resource":"selfsubjectaccessreviews","responseKind":{"group":"","version":"","kind":"SelfSubjectAccessReview"},"scope":"Cluster","singularResource":"selfsubjectaccessreview",` + verbs + `}`; !strings.Contains(body, want) {
			t.Errorf("aggregated discovery has no %s: %s", want, body)
		}
		if code, _, body := w.post("/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{}`); code != http.StatusNotFound {
			t.Errorf("/fleet: %d %s", code, body)
		}
		if code, _, body := w.post("/clusters/two"+identityPath, `{}`); code != http.StatusNotFound {
			t.Errorf("/clusters/two: %d %s", code, body)
		}
	})
}

// An own resource is read and answered in each encoding.
func TestOwn_encodings(t *testing.T) {
	inMemory(t, []string{"one"}, withReviews, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		types := []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}
		for _, in := range types {
			info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), in)
			body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer,
				authorizationv1.SchemeGroupVersion),
				&authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
					},
				})
			if err != nil {
				t.Fatal(err)
			}
			for _, out := range types {
				code, h, text := w.post(accessPath, string(body), "Content-Type", in, "Accept", out)
				object, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
				if err != nil || code != http.StatusCreated || h.Get("Content-Type") != out ||
					kind.Kind != "SelfSubjectAccessReview" {
					t.Fatalf("%s to %s: %d %v %q: %v", in, out, code, h, text, err)
				}
				if review := object.(*authorizationv1.SelfSubjectAccessReview); !review.Status.Allowed ||
					review.Spec.ResourceAttributes.Resource != "pods" {
					t.Errorf("%s to %s: %+v", in, out, review)
				}
			}
		}
		for _, path := range []string{"/clusters/one" + identityPath, "/fleet" + identityPath} {
			if code, _, body := w.post(path, `{}`, "X-User", "jane"); code != http.StatusCreated ||
				!strings.Contains(body, `"username":"jane"`) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	})
}

// Requests that are not good get the codes of kube-apiserver.
func TestOwn_refusals(t *testing.T) {
	inMemory(t, []string{"one"}, withReviews, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		const good = `{"spec":{"resourceAttributes":{"verb":"get"}}}`
		for _, c := range []struct {
			name, path, body string
			header           []string
			code             int
			text             string
		}{
			{"good", accessPath, good, nil, 201, `"allowed":true`},
			{"a name", accessPath + "/x", good, nil, 404, "could not find"},
			{
				"a namespace", strings.Replace(accessPath, "selfsubjectaccess", "namespaces/x/selfsubjectaccess", 1),
				good, nil, 404, "could not find",
			},
			{
				"not listed", strings.Replace(accessPath, "accessreviews", "rulesreviews", 1), good, nil, 404,
				"could not find",
			},
			{"media type", accessPath, good, []string{"Content-Type", "text/plain"}, 415, "unknown format"},
			{"accept", accessPath, good, []string{"Accept", "text/plain"}, 406, "Available representations"},
			{
				"kind", accessPath, `{"kind":"Pod","apiVersion":"v1"}`, nil, 400,
				`Pod in version \"v1\" cannot be handled as a SelfSubjectAccessReview`,
			},
			{"syntax", accessPath, `{`, nil, 400, "is unrecognized"},
			{
				"no protobuf", accessPath, good, []string{
					"Content-Type", "application/vnd.kubernetes.protobuf",
				}, 400, "is unrecognized",
			},
			{"option", accessPath + "?dryRun=x", good, nil, 422, "dryRun"},
			{"strict", accessPath + "?fieldValidation=Strict", `{"spec":{"x":1}}`, nil, 400, "unknown field"},
			{"long", accessPath, strings.Repeat(" ", 64<<10+1), nil, 413, "limit is 65536"},
			{"error", accessPath, `{"spec":{}}`, nil, 503, "the cluster one does not answer"},
		} {
			if code, _, body := w.post(c.path, c.body, c.header...); code != c.code || !strings.Contains(body, c.text) {
				t.Errorf("%s: %d %s, want %d %s", c.name, code, body, c.code, c.text)
			}
		}
		if _, h, _ := w.post(accessPath,
			`{"spec":{"resourceAttributes":{},"x":1}}`); !slices.Contains(h.Values("Warning"),
			`299 - "unknown field \"spec.x\""`) {
			t.Errorf("warnings are %q", h.Values("Warning"))
		}
		if code, _, body := w.get(accessPath); code != http.StatusMethodNotAllowed {
			t.Errorf("GET: %d %s", code, body)
		}
	})
}

// Hooks decide about own resources too, as about a create.
func TestOwn_passesTheHooks(t *testing.T) {
	var calls []string
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		withReviews(w)
		w.options.Admit = func(_ *http.Request, q *Request) (func(), error) {
			a := q.Attributes()
			calls = append(calls, fmt.Sprintf("%s %s %s/%s %s", q.Cluster, a.Verb, a.Group, a.Version, a.Resource))
			if q.Query.Has("no") {
				return nil, apierrors.NewUnauthorized("Unauthorized")
			}
			return func() {}, nil
		}
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		if code, _, body := w.post(accessPath+"?no", `{}`); code != http.StatusUnauthorized {
			t.Errorf("%d %s", code, body)
		}
		if want := []string{"one create authorization.k8s.io/v1 selfsubjectaccessreviews"}; !slices.Equal(calls, want) {
			t.Errorf("calls are %q, want %q", calls, want)
		}
	})
}

// An own resource whose answer is only a part of what the cluster knows is answered by the
// cluster, if the credentials of the caller can be passed on.
func TestOwn_partialIsPassedOn(t *testing.T) {
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		withReviews(w)
		w.options.PassThrough, w.options.ProgramResources[0].PreferCluster = true, true
		w.options.Authorize = func(r *http.Request, _ *Request) (*Access, error) {
			return &Access{NoPassThrough: r.Header.Get("X-Withheld")}, nil
		}
		listed := *w.origins["one"].answer.Load()
		w.origins["one"].answers(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost {
				return listed(rw, r)
			}
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"kind":"Answer","of":"the cluster"}`)
			return true
		})
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		const body = `{"spec":{"resourceAttributes":{"verb":"get"}}}`
		for _, c := range []struct{ name, path, withheld, want string }{
			{"partial", accessPath, "", "the cluster"},
			{"partial, withheld", accessPath, "a certificate", `"allowed":true`},
			{"not partial", "/clusters/one" + identityPath, "", `"kind":"SelfSubjectReview"`},
		} {
			if code, _, text := w.post(c.path, body, "X-Withheld", c.withheld); code >= 300 ||
				!strings.Contains(text, c.want) {
				t.Errorf("%s: %d %s, want %s", c.name, code, text, c.want)
			}
		}
	})
}

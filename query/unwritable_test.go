// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query_test

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/query"
)

// secret is a part of the pod that cannot be written.
const secret = "open-sesame"

// malformed starts a server whose pods a, bad and c are in protobuf. The spec of bad ends
// within a field. The metadata is readable.
func malformed(t *testing.T) *rest.Config {
	t.Helper()
	others := miniature.New()
	t.Cleanup(others.Close)
	var list []byte
	add := func(field byte, raw []byte, err error) {
		expect.NoError(t, err)
		list = append(binary.AppendUvarint(append(list, field<<3|2), uint64(len(raw))), raw...)
	}
	meta, err := (&metav1.ListMeta{ResourceVersion: "9"}).Marshal()
	add(1, meta, err)
	for _, name := range []string{"a", "bad", "c"} {
		p := pod("shop", name, "web")
		p.ResourceVersion, p.Annotations = "9", map[string]string{"note": secret}
		raw, err := p.Marshal()
		if name == "bad" {
			raw = append(append(raw, 2<<3|2, byte(2+len(secret)), 10<<3|2, byte(len(secret)+1)), secret...)
		}
		add(2, raw, err)
	}
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Raw: list}).Marshal()
	expect.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("watch") != "" {
			others.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(append([]byte("k8s\x00"), body...))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// An object that cannot be written is not left out: the page ends before it, the next one
// is an error that names it, and the client can continue after it.
func TestHandler_objectThatCannotBeWritten(t *testing.T) {
	var log strings.Builder
	opts := &query.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for name, subject := range map[string]struct {
		handler        http.Handler
		prefix, suffix string // of keys, and of requests for one object
	}{
		"factory": {ofFactory(t, malformed(t), pods, opts), "", ""},
		"fleet":   {ofFleet(t, map[string]*rest.Config{"eu": malformed(t)}, pods, opts), "eu/", "?cluster=eu"},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			key := func(name string) string { return subject.prefix + "shop/" + name }
			wantPage := func(query, after string, names ...string) {
				t.Helper()
				r := get(t, subject.handler, query)
				keys := []string{}
				for _, name := range names {
					keys = append(keys, key(name))
				}
				expect.Equal(t, r.Keys, keys)
				expect.Equal(t, r.Continue, after)
			}
			for _, list := range []string{
				"/pods?", "/pods?index=app&value=web&", "/pods?labelSelector=app&namespace=shop&limit=1&",
			} {
				wantPage(list, key("a"), "a")
				w := wantError(t, subject.handler, http.MethodGet, list+"continue="+url.QueryEscape(key("a")),
					http.StatusInternalServerError)
				var failed struct{ Error, Continue string }
				expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &failed))
				expect.Equal(t, failed.Error,
					`pods "`+key("bad")+`" cannot be written as JSON, the log of the program has the cause`)
				expect.Equal(t, failed.Continue, key("bad"))
				wantPage(list+"continue="+url.QueryEscape(failed.Continue), "", "c")
			}
			wantPage("/pods?keys=true", "", "a", "bad", "c")
			w := wantError(t, subject.handler, http.MethodGet, "/pods/shop/bad"+subject.suffix,
				http.StatusInternalServerError)
			if body := w.Body.String(); !strings.Contains(body, key("bad")) || strings.Contains(body, secret) ||
				strings.Contains(body, "continue") {
				t.Errorf("the error is %s", body)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), key("bad")) {
				t.Errorf("%d lines in the log, want one:\n%s", n, log.String())
			}
		})
	}
}

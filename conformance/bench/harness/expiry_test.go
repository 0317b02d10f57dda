// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestExpiry_endsWatchesAndRefusesTheNext(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
		}
	})
	var e Expiry
	client, err := rest.HTTPClientFor(e.Wrap(s.Config))
	if err != nil {
		t.Fatal(err)
	}
	get := func(query string) *http.Response {
		t.Helper()
		resp, err := client.Get(s.Config.Host + "/api/v1/pods" + query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	watch := get("?watch=true&resourceVersion=1")
	ended := make(chan error, 1)
	go func() {
		_, err := watch.Body.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the watch ended before it expired: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	e.Expire()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v", err)
	}
	if resp := get(""); resp.StatusCode != http.StatusOK {
		t.Errorf("a list: %s", resp.Status)
	}
	if resp := get("?watch=true&sendInitialEvents=true"); resp.StatusCode != http.StatusOK {
		t.Errorf("a streamed list: %s", resp.Status)
	}
	for _, want := range []int{http.StatusGone, http.StatusOK} {
		if resp := get("?watch=1&resourceVersion=1"); resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
}

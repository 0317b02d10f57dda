// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// failure is an error that a client receives, and the code of the response.
type failure struct {
	code int
	text string
	// next is the key that the client can continue its list from, if there is one.
	next string
}

// Error returns the text that the client receives.
func (f *failure) Error() string { return f.text }

// refuse returns a failure.
func refuse(code int, format string, args ...any) error {
	return &failure{code: code, text: fmt.Sprintf(format, args...)}
}

// continueAfter returns the failure of a list that the client can continue after a key.
func continueAfter(key string, err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return err
	}
	return &failure{f.code, f.text, key}
}

// unknownIndex is the error for an index that a resource does not have.
func unknownIndex[X any](name string, indexes map[string]X) error {
	return refuse(http.StatusBadRequest, "index %q is unknown, the indexes are [%s]",
		name, strings.Join(slices.Sorted(maps.Keys(indexes)), ", "))
}

// writeError writes an error as a response. The code of an error that is not a failure is
// 500.
func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	body := struct {
		Error    string `json:"error"`
		Continue string `json:"continue,omitempty"`
	}{Error: err.Error()}
	if f, ok := errors.AsType[*failure](err); ok {
		code, body.Continue = f.code, f.next
	}
	switch code {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "GET, HEAD")
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

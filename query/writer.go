// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"log/slog"
	"net/http"

	"github.com/watershed-project/watershed/internal/undecodable"
	"github.com/watershed-project/watershed/wire"
)

// writer writes objects as JSON. It logs each state that it cannot write
// once: the cause may repeat a part of the object, so the client does not receive it.
type writer struct {
	logger *slog.Logger
	logged undecodable.Log
}

// append appends an object of a resource. After an error, b is as it was.
func (w *writer) append(b []byte, resource, key string, o *wire.Object) ([]byte, error) {
	b, err := o.AppendTypedJSON(b)
	if err == nil {
		return b, nil
	}
	if w.logged.First(o) {
		w.logger.Error("object cannot be written as JSON", "resource", resource, "key", key, "object", o.String(),
			"err", err)
	}
	return b, refuse(http.StatusInternalServerError,
		"%s %q cannot be written as JSON, the log of the program has the cause", resource, key)
}

// appendItem appends an object to the items of a list.
func (w *writer) appendItem(items []byte, resource, key string, o *wire.Object) ([]byte, error) {
	if len(items) > 0 {
		items = append(items, ',')
	}
	return w.append(items, resource, key, o)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// ListReader splits a list into objects as it arrives. It holds one object at a time,
// however long the list is. It is not safe for concurrent use.
type ListReader struct {
	items itemReader
	err   error
}

// itemReader reads a list in one of the encodings.
type itemReader interface {
	next() (*wire.Object, error)
	meta() ListMeta
}

// NewListReader reads the response to a LIST. All objects get the given kind. If it is
// nil, they have the type in their own bytes, or else that of the list.
func NewListReader(r io.Reader, e wire.Encoding, kind *wire.Kind) *ListReader {
	switch e {
	case wire.JSON:
		return &ListReader{items: newJSONList(r, kind)}
	case wire.Protobuf:
		return &ListReader{items: newProtoList(r, kind)}
	default:
		return &ListReader{err: fmt.Errorf("wire: read a list: %v", e)}
	}
}

// Next returns the next object. [io.EOF] means that the list is complete. An
// [*wire.ObjectError] means that one object could not be filed: call Next again. Any other
// error is final, and the list is not complete: [io.ErrUnexpectedEOF] if it was
// truncated, and also an error if the body is not a list.
//
// If kind is nil, items without a type of their own need a list that has sent its type
// before them; otherwise the error is final.
func (l *ListReader) Next() (*wire.Object, error) {
	if l.err != nil {
		return nil, l.err
	}
	o, err := l.items.next()
	if err == nil {
		return o, nil
	}
	if failed := (*wire.ObjectError)(nil); errors.As(err, &failed) {
		return nil, failed
	}
	if err != io.EOF { //nolint:errorlint // only the bare one means that all went well
		err = fmt.Errorf("wire: read a list: %w", scan.Bounded(err))
	}
	l.err = err
	return nil, err
}

// Meta returns the metadata of the list. It is complete when Next has returned [io.EOF].
func (l *ListReader) Meta() ListMeta {
	if l.items == nil {
		return ListMeta{}
	}
	return l.items.meta()
}

// ListMeta is the metadata of a list.
type ListMeta struct {
	ResourceVersion string
	// Continue is the token for the next page, "" if there is none.
	Continue string
	// RemainingItemCount is the number of objects in the next pages, 0 if the server does
	// not send it.
	RemainingItemCount int64
}

// itemKind returns the kind of a list's items, derived from the kind of the list.
func itemKind(b *wire.Builder, apiVersion, kind string) (*wire.Kind, error) {
	if b.Kind != nil {
		return b.Kind, nil
	}
	item, ok := strings.CutSuffix(kind, "List")
	if !ok || item == "" {
		return nil, fmt.Errorf("the kind of the items cannot be derived from a list of kind %.100q", kind)
	}
	return b.KindOf([]byte(apiVersion), []byte(item))
}

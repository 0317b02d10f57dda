// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"errors"
	"fmt"
	"io"
)

// ListMeta is what a list says of itself.
type ListMeta struct {
	ResourceVersion string
	// Continue is the token for the next page, "" if there is none.
	Continue string
	// RemainingItemCount is how many objects the next pages have, 0 if the server
	// does not say.
	RemainingItemCount int64
}

// ListReader cuts a list into objects as it arrives. It holds one object at a
// time, however long the list is. It is not safe for concurrent use.
type ListReader struct {
	items itemReader
	err   error
}

// itemReader is a list in one of the encodings.
type itemReader interface {
	next() (*Object, error)
	meta() ListMeta
}

// NewListReader reads the answer to a LIST. All objects get the kind that is
// given; without one, they are what they say, or what the list says.
func NewListReader(r io.Reader, e Encoding, kind *Kind) *ListReader {
	switch e {
	case JSON:
		return &ListReader{items: newJSONList(r, kind)}
	case Protobuf:
		return &ListReader{items: newProtoList(r, kind)}
	default:
		return &ListReader{err: fmt.Errorf("wire: read a list: %v", e)}
	}
}

// Next is the next object. [io.EOF] means that the list is complete. An
// [*ObjectError] means that one object could not be filed: call Next again. Any
// other error is final, and the list is not complete: [io.ErrUnexpectedEOF] if it
// was cut off, and an error also for a body that is no list.
//
// Without a kind, items that do not say their own need a list that says it before
// them; else the error is final.
func (l *ListReader) Next() (*Object, error) {
	if l.err != nil {
		return nil, l.err
	}
	o, err := l.items.next()
	if err == nil {
		return o, nil
	}
	if failed := (*ObjectError)(nil); errors.As(err, &failed) {
		return nil, failed
	}
	if err != io.EOF { //nolint:errorlint // only the bare one means that all went well
		err = fmt.Errorf("wire: read a list: %w", err)
	}
	l.err = err
	return nil, err
}

// Meta is what the list says of itself. It is complete when Next has returned
// [io.EOF].
func (l *ListReader) Meta() ListMeta {
	if l.items == nil {
		return ListMeta{}
	}
	return l.items.meta()
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// jsonList reads a list in JSON. Its members come in any order: built-in kinds have kind,
// apiVersion, metadata, items; custom ones are sorted by name.
type jsonList struct {
	builder wire.Builder
	in      *meter
	dec     *jsontext.Decoder

	apiVersion, kind string
	// itemKind is the kind of the items according to the list, nil if not known yet.
	itemKind *wire.Kind
	about    ListMeta
	begun    bool
	inItems  bool
	hadItems bool
	done     bool
}

func newJSONList(r io.Reader, kind *wire.Kind) *jsonList {
	in := &meter{r: r}
	return &jsonList{
		builder: wire.Builder{Kind: kind},
		in:      in,
		dec:     jsontext.NewDecoder(in, scan.Options...),
	}
}

func (l *jsonList) meta() ListMeta { return l.about }

func (l *jsonList) next() (*wire.Object, error) {
	for {
		l.in.left = buffer.MaxObject
		if l.inItems && l.dec.PeekKind() != ']' {
			item, err := l.dec.ReadValue()
			if err != nil {
				return nil, unexpected(err)
			}
			return l.item(item)
		}
		if err := l.token(); err != nil {
			return nil, err
		}
	}
}

func (l *jsonList) item(item []byte) (*wire.Object, error) {
	if l.itemKind == nil && l.kind != "" && l.apiVersion != "" {
		l.itemKind, _ = itemKind(&l.builder, l.apiVersion, l.kind)
	}
	o, err := l.builder.JSON(&scan.Header{}, item, l.itemKind)
	if errors.Is(err, scan.ErrUntyped) && (l.kind == "" || l.apiVersion == "") {
		// All other items would fail in the same way, and a list from which nothing can
		// be read must not look like an empty one.
		return nil, errors.New("neither the items nor the list before them have apiVersion and kind")
	}
	return o, err
}

// token moves past one member of the list, or into or out of its items.
func (l *jsonList) token() error {
	t, err := l.dec.ReadToken()
	switch {
	case err == io.EOF && l.done: //nolint:errorlint // jsontext returns it bare
		return io.EOF
	case err != nil:
		return unexpected(err)
	case l.done:
		return fmt.Errorf("there is %v after the list", t.Kind())
	case !l.begun:
		l.begun = true
		if t.Kind() != '{' {
			return fmt.Errorf("it is not a JSON object but %v", t.Kind())
		}
		return nil
	}
	switch t.Kind() {
	case ']':
		l.inItems = false
		return nil
	case '}':
		if !l.hadItems {
			// The API server always writes the items. A body without them is not a list,
			// and to treat it as an empty list would delete all objects.
			return fmt.Errorf("it is of kind %.100q and has no items", l.kind)
		}
		l.done = true
		return nil
	default:
		return l.member(t.String())
	}
}

func (l *jsonList) member(name string) error {
	if name == "items" {
		if l.hadItems {
			return errors.New("it has items twice")
		}
		l.hadItems = true
		if l.dec.PeekKind() == 'n' {
			return unexpected(l.dec.SkipValue())
		}
		t, err := l.dec.ReadToken()
		if err != nil {
			return unexpected(err)
		}
		if t.Kind() != '[' {
			return fmt.Errorf("its items are not an array but %v", t.Kind())
		}
		l.inItems = true
		return nil
	}
	value, err := l.dec.ReadValue()
	if err != nil {
		return unexpected(err)
	}
	s := scan.JSON{B: value}
	switch name {
	case "kind":
		l.setText(&l.kind, &s)
	case "apiVersion":
		l.setText(&l.apiVersion, &s)
	case "metadata":
		l.scanMeta(&s)
	}
	if s.Bad {
		return fmt.Errorf("its %s has the wrong type", name)
	}
	return nil
}

func (l *jsonList) scanMeta(s *scan.JSON) {
	if s.Null() {
		return
	}
	s.Begin('{')
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		switch string(name) {
		case "resourceVersion":
			l.setText(&l.about.ResourceVersion, s)
		case "continue":
			l.setText(&l.about.Continue, s)
		case "remainingItemCount":
			l.about.RemainingItemCount = s.Integer()
		default:
			s.Value()
		}
	}
}

func (l *jsonList) setText(to *string, s *scan.JSON) {
	if text, ok := s.Text(); ok {
		*to = string(text)
	}
}

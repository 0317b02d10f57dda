// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// protoList reads a list in protobuf: magic number, envelope, and in it the list with its
// items. The items are read as they arrive.
type protoList struct {
	builder wire.Builder
	in      message

	env      scan.Envelope
	itemKind *wire.Kind
	about    ListMeta
	begun    bool
	inList   bool
	hadList  bool
}

func newProtoList(r io.Reader, kind *wire.Kind) *protoList {
	return &protoList{
		builder: wire.Builder{Kind: kind},
		in:      newMessage(bufio.NewReaderSize(r, 64<<10)),
	}
}

func (l *protoList) meta() ListMeta { return l.about }

func (l *protoList) next() (*wire.Object, error) {
	if !l.begun {
		l.begun = true
		var head [len(scan.Magic)]byte
		if _, err := l.in.ReadFull(head[:]); err != nil {
			return nil, unexpected(err)
		}
		if string(head[:]) != scan.Magic {
			return nil, scan.ErrMagic
		}
	}
	for {
		if l.inList {
			o, err := l.listField()
			if o != nil || err != nil {
				return o, err
			}
			continue
		}
		if err := l.envelopeField(); err != nil {
			return nil, err
		}
	}
}

// envelopeField reads one field of the envelope, or up to the beginning of the list.
func (l *protoList) envelopeField() error {
	switch err := l.in.Next(); {
	case err == io.EOF && !l.hadList: //nolint:errorlint // next returns it bare
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case l.in.field == 1:
		b, err := l.in.Bytes()
		if err != nil {
			return err
		}
		if !l.env.ScanType(b) {
			return scan.ErrProtobuf
		}
		return nil
	case l.in.field != 2:
		return l.in.Skip()
	case l.hadList:
		return errors.New("it has two bodies")
	}
	n, err := l.in.Length()
	if err != nil {
		return err
	}
	// In protobuf, any message can look like a list.
	if l.env.IsStatus() {
		return errors.New("it is of kind \"Status\"")
	}
	if l.itemKind, err = itemKind(&l.builder, string(l.env.APIVersion), string(l.env.Kind)); err != nil {
		return err
	}
	l.inList, l.hadList = true, true
	l.in.left = n
	return nil
}

// listField reads one field of the list, which may be an object.
func (l *protoList) listField() (*wire.Object, error) {
	switch err := l.in.Next(); {
	case err == io.EOF: //nolint:errorlint // next returns it bare
		l.inList = false
		l.in.left = endless
		return nil, nil
	case err != nil:
		return nil, err
	case l.in.field == 1:
		b, err := l.in.Bytes()
		if err != nil {
			return nil, err
		}
		return nil, l.scanMeta(b)
	case l.in.field == 2:
		b, err := l.in.Bytes()
		if err != nil {
			return nil, fmt.Errorf("an item: %w", err)
		}
		return l.builder.Protobuf(&scan.Header{}, b, l.itemKind)
	default:
		return nil, l.in.Skip()
	}
}

func (l *protoList) scanMeta(b []byte) error {
	p := protobuf.Scanner{Data: b}
	for p.Next() {
		switch p.Field {
		case 2:
			l.about.ResourceVersion = string(p.Bytes())
		case 3:
			l.about.Continue = string(p.Bytes())
		case 4:
			l.about.RemainingItemCount = int64(p.Varint())
		}
	}
	if p.Bad {
		return scan.ErrProtobuf
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/jsondiff"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/wire"
)

// writeChanges writes a list of changes, one after the other.
func (p *Reader) writeChanges(
	w http.ResponseWriter, r *http.Request, list document.ChangeList, items iter.Seq[document.Change],
) error {
	list.Kind = "ChangeList"
	list.APIVersion = "watershed.dev/v1"
	list.Items = []document.Change{}
	return p.writeDocument(w, r, list, func(b *respond.Body, head []byte) error {
		if err := b.Add(encode.Raw(bytes.TrimSuffix(head, []byte("]}")))); err != nil {
			return err
		}
		separator := ""
		for item := range items {
			if r.Context().Err() != nil {
				return context.Cause(r.Context())
			}
			text, err := json.Marshal(item)
			if err != nil {
				return err
			}
			if err := b.Add(encode.Raw(append([]byte(separator), text...))); err != nil {
				return err
			}
			separator = ",\n"
		}
		return b.Add(encode.Raw([]byte("]}\n")))
	})
}

// writeDocument encodes a document in JSON, and answers with what a function adds to the body.
func (p *Reader) writeDocument(
	w http.ResponseWriter, r *http.Request, document any, add func(b *respond.Body, text []byte) error,
) error {
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	b := respond.NewBody(p.tracker, w, r, encode.JSON.MediaType(), p.logger)
	return b.Finish(func() error { return add(b, text) })
}

// describe returns a change for the response. A change that is missing has an error.
func describe(c *history.PastChange, err error) document.Change {
	if err != nil {
		return document.Change{Type: "MISSING", Time: c.Time.UTC(), Message: err.Error()}
	}
	d := document.Change{
		Type: string(c.Type), Time: c.Time.UTC(), Relisted: c.Listed,
		ResourceVersion: strconv.FormatUint(c.Version, 10), Namespace: c.Object.Namespace(), Name: c.Object.Name(),
		Managers: c.Managers(), Unknown: c.Old == nil && c.Type == watch.Modified,
	}
	if c.Type == watch.Deleted || c.Old == nil {
		return d
	}
	if d.Differences, err = differences(c.Old, c.Object); err != nil {
		d.Message = err.Error()
	}
	return d
}

// differences compares two states of an object.
func differences(old, now *wire.Object) ([]jsondiff.Difference, error) {
	a, err := plain(old)
	b, failed := plain(now)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return jsondiff.Compare(a, b)
}

// plain returns the fields of an object, without those that change with every write.
func plain(o *wire.Object) (map[string]any, error) {
	form := encode.Form{Encoding: encode.JSON}
	text, err := encode.Guard(o, func() ([]byte, error) { return form.Item(nil, o) })
	if err != nil {
		return nil, err
	}
	return jsondiff.Object(text)
}

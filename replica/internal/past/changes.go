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
	"time"

	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/internal/jsondiff"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/wire"
)

// ChangeList is the response to a request for the changes of objects.
type ChangeList struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Since is when the changes begin: later than requested if the files do not reach back so
	// far, or if the namespace was created later. Below /fleet it is the earliest of these times
	// of all clusters.
	Since time.Time `json:"since"`
	// Clusters are, below /fleet, the clusters that have less than what was requested.
	Clusters []PartialCluster `json:"clusters,omitempty"`
	// Items are in the order in which they arrived. It is the last field, so that they can be
	// written while they are read.
	Items []Change `json:"items"`
}

// PartialCluster is a cluster whose past is not complete in a response below /fleet.
type PartialCluster struct {
	Name string `json:"name"`
	// Since is when its changes begin, nil if it has none in the response.
	Since *time.Time `json:"since,omitempty"`
	// Hidden and Missing are those of the cluster, see [ChangeSummary].
	Hidden  int `json:"hidden,omitempty"`
	Missing int `json:"missing,omitempty"`
	// Message is why the cluster is left out.
	Message string `json:"message,omitempty"`
}

// Change is a change of an object in the past.
type Change struct {
	// Type is ADDED, MODIFIED or DELETED. MISSING means that changes are missing here.
	Type string `json:"type"`
	// Cluster is set below /fleet.
	Cluster string `json:"cluster,omitempty"`
	// Time is when the change arrived. For MISSING it is the time of the last known state before
	// the missing changes, or the beginning of the period. Relisted means that it happened some time before,
	// during an interruption of the watch.
	Time     time.Time `json:"time"`
	Relisted bool      `json:"relisted,omitempty"`
	// ResourceVersion is that of the change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	// Managers are the field managers that made the change: several if it is not known which
	// of them did.
	Managers []string `json:"managers,omitempty"`
	// Differences are those between the states before and after the change, without
	// resourceVersion and managedFields.
	Differences []Difference `json:"differences,omitempty"`
	// Unknown means that the state before the change is not known.
	Unknown bool `json:"unknown,omitempty"`
	// Message is why changes are missing.
	Message string `json:"message,omitempty"`
}

// Difference is a field that differs. Old or New is missing if the field is.
type Difference struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// writeChanges writes a list of changes, one after the other.
func (p *Reader) writeChanges(w http.ResponseWriter, r *http.Request, list ChangeList, items iter.Seq[Change]) error {
	list.Kind, list.APIVersion, list.Items = "ChangeList", "watershed.dev/v1", []Change{}
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
func describe(c *history.PastChange, err error) Change {
	if err != nil {
		return Change{Type: "MISSING", Time: c.Time.UTC(), Message: err.Error()}
	}
	d := Change{
		Type: c.Type.String(), Time: c.Time.UTC(), Relisted: c.Listed,
		ResourceVersion: strconv.FormatUint(c.Version, 10), Namespace: c.Object.Namespace(), Name: c.Object.Name(),
		Managers: c.Managers(), Unknown: c.Old == nil && c.Type == wire.Modified,
	}
	if c.Type == wire.Deleted || c.Old == nil {
		return d
	}
	if d.Differences, err = differences(c.Old, c.Object); err != nil {
		d.Message = err.Error()
	}
	return d
}

// differences compares two states of an object.
func differences(old, now *wire.Object) ([]Difference, error) {
	a, err := plain(old)
	b, failed := plain(now)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	fields, err := jsondiff.Fields(jsondiff.Compare(a, b))
	var all []Difference
	for _, f := range fields {
		all = append(all, Difference(f))
	}
	return all, err
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

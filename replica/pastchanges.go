// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/jsondiff"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// ChangeList is the response to a request for the changes of objects.
type ChangeList struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	// Since is when the changes begin: later than requested if the files do not reach back so
	// far, or if the namespace was created later.
	Since time.Time `json:"since"`
	// Items are in the order in which they arrived.
	Items []Change `json:"items"`
}

// Change is a change of an object in the past.
type Change struct {
	// Type is ADDED, MODIFIED or DELETED. MISSING means that changes are missing here.
	Type string `json:"type"`
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

// serveChanges answers with the changes of the objects that the request names.
func (p *pastReads) serveChanges(w http.ResponseWriter, r *http.Request, q *Request, place *pastPlace) error {
	since, until, err := q.period(changesParameter, time.Now())
	switch {
	case err != nil:
		return err
	case q.Query.Get("labelSelector") != "" || q.Query.Get("fieldSelector") != "":
		return apierrors.NewBadRequest("changes cannot be selected by labels or fields")
	}
	if since, err = p.visibleSince(r, q, since); err != nil {
		return err
	}
	if err := place.enter(); err != nil {
		return err
	}
	var changes *fleet.PastChanges
	if q.Name != "" {
		changes, err = place.feed.ObjectChanges(r.Context(), since, until, objectKey(q.Namespace, q.Name))
	} else {
		prefix := objectKey(q.Namespace, "")
		changes, err = place.feed.Changes(r.Context(), since, until, func(key string) bool { return strings.HasPrefix(key, prefix) })
	}
	if err != nil {
		return view.PastError(place.feed.Resource().GroupResource(), since, err)
	}
	b := respond.NewBody(&p.tracker, w, r, encode.JSON.MediaType(), p.logger)
	return b.Finish(func() error {
		head, err := json.Marshal(ChangeList{Kind: "ChangeList", APIVersion: "watershed.dev/v1", Since: changes.Since.UTC(), Items: []Change{}})
		if err != nil {
			return err
		}
		if err := b.Add(encode.Raw(bytes.TrimSuffix(head, []byte("]}")))); err != nil {
			return err
		}
		separator := ""
		for change, err := range changes.All(r.Context()) {
			if err != nil && r.Context().Err() != nil {
				return err
			}
			text, failed := json.Marshal(describe(&change, err))
			if failed != nil {
				return failed
			}
			if err := b.Add(encode.Raw(append([]byte(separator), text...))); err != nil {
				return err
			}
			separator = ",\n"
		}
		return b.Add(encode.Raw([]byte("]}\n")))
	})
}

// visibleSince returns the time since which a caller may read changes: the creation of the
// namespace if that is later, unless the caller may read all namespaces.
func (p *pastReads) visibleSince(r *http.Request, q *Request, since time.Time) (time.Time, error) {
	err := p.allow(r, q)(since)
	if err == nil {
		return since, nil
	}
	if created, ok := p.created(q.attributes.Namespace); ok {
		return created, nil
	}
	return since, err
}

// describe returns a change for the response. A change that is missing has an error.
func describe(c *fleet.PastChange, err error) Change {
	if err != nil {
		return Change{Type: "MISSING", Time: c.Time.UTC(), Message: err.Error()}
	}
	d := Change{
		Type: c.Type.String(), Time: c.Time.UTC(), Relisted: c.Listed, ResourceVersion: strconv.FormatUint(c.Version, 10),
		Namespace: c.Object.Namespace(), Name: c.Object.Name(), Managers: c.Managers(), Unknown: c.Old == nil && c.Type == wire.Modified,
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

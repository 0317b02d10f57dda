// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// list answers a LIST.
func (c *Cluster) list(w http.ResponseWriter, r *http.Request, q *query) error {
	c.stats.lists.Add(1)
	if q.media.as == partialObject {
		return notAcceptable(fmt.Sprintf("you requested %s, but the requested object is a list (*core.%sList)",
			partialObject, q.resource.kind))
	}
	page, err := c.page(r, q)
	if err != nil {
		return err
	}
	render := c.renderer(q.resource, q.media)
	size, items := 0, 0
	for i, version := range page.versions {
		if version == 0 {
			continue
		}
		n, err := render.itemSize(page.first + i)
		if err != nil {
			return err
		}
		size += n
		items++
	}
	commas := 0
	if render.encoding == jsonEncoding {
		commas = max(0, items-1)
	}
	frame, err := render.encoding.list(q.resource.listType(render.partial), page.meta, size,
		render.partial && items == 0)
	if err != nil {
		return err
	}
	b := c.begin(w, render.encoding.contentType(), acceptsGzip(r) && frame.size(size+commas) > gzipFrom)
	b.close(page.send(b, render, &frame, commas > 0))
	return nil
}

// page is a part of a list.
type page struct {
	snapshot
	meta metav1.ListMeta
}

func (p *page) send(b *body, render *renderer, frame *around, commas bool) error {
	if err := b.write(frame.before); err != nil {
		return err
	}
	separate := false
	for i, version := range p.versions {
		if version == 0 {
			continue
		}
		err := b.add(func(dst []byte) ([]byte, error) {
			if separate {
				dst = append(dst, ',')
			}
			return render.appendItem(dst, p.first+i, p.state(i))
		})
		if err != nil {
			return err
		}
		separate = commas
	}
	return b.write(frame.after)
}

// page reads the objects that the query selects.
func (c *Cluster) page(r *http.Request, q *query) (*page, error) {
	p := c.population
	o := &q.options
	version, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	lo, hi := q.resource.objects(p, q.namespace)
	at := version
	exact := isExact(o)
	limit := int(o.Limit)
	old := apierrors.NewResourceExpired(expiredList)
	if o.ResourceVersion == "0" {
		limit = 0
	}
	if o.Continue != "" {
		t, err := decodeToken(o.Continue)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		if version != 0 {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		at, exact = max(0, t.Version), t.Version > 0
		old = expiredToken(t)
		lo = min(max(lo, q.resource.from(p, q.namespace, strings.TrimPrefix(t.Start, "/"))), hi)
	}
	if newest, ok := c.reach(r.Context(), uint64(at)); !ok {
		return nil, tooLarge(uint64(at), newest)
	}
	from := uint32(0)
	if exact {
		if at <= firstVersion {
			return nil, old
		}
		from = uint32(at - firstVersion)
	}
	s, ok := c.read(q.resource, lo, hi, from)
	if !ok {
		return nil, old
	}
	result := &page{snapshot: s, meta: metav1.ListMeta{ResourceVersion: formatVersion(s.version)}}
	if limit > 0 {
		result.limit(limit, func(i int) string {
			return encodeToken(token{
				Version: firstVersion + int64(s.version), Start: "/" + q.resource.key(p, q.namespace, lo+i) + "\x00",
			})
		})
	}
	return result, nil
}

// isExact reports whether a list must have exactly the requested version.
func isExact(o *internalversion.ListOptions) bool {
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		return false
	}
	return o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0
}

// limit cuts the page after n objects, and sets the continue token if there are more.
func (p *page) limit(n int, next func(i int) string) {
	last := -1
	for i, version := range p.versions {
		if version == 0 {
			continue
		}
		if n--; n == 0 {
			last = i
			break
		}
	}
	if last < 0 {
		return
	}
	left := int64(0)
	for _, version := range p.versions[last+1:] {
		if version != 0 {
			left++
		}
	}
	p.versions = p.versions[:last+1]
	if left > 0 {
		p.meta.Continue = next(last)
		p.meta.RemainingItemCount = &left
	}
}

// token is the content of a continue token, in the real server's form.
type token struct {
	API     string `json:"v"`
	Version int64  `json:"rv"`
	Start   string `json:"start"`
}

const tokenAPI = "meta.k8s.io/v1"

func encodeToken(t token) string {
	t.API = tokenAPI
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func decodeToken(s string) (t token, err error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	switch {
	case err != nil:
		return t, fmt.Errorf("continue key is not valid: %w", err)
	case t.API != tokenAPI:
		return t, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.API)
	case t.Version == 0:
		return t, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version " +
			"meta.k8s.io/v1)")
	case t.Start == "":
		return t, fmt.Errorf("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	}
	if key := "/" + strings.TrimPrefix(t.Start, "/"); path.Clean(key) != key {
		return t, fmt.Errorf("continue key is not valid: %v", t.Start)
	}
	return t, nil
}

// expiredToken returns a 410 with a token to continue with the current state.
func expiredToken(t token) *apierrors.StatusError {
	t.Version, t.Start = -1, strings.TrimPrefix(t.Start, "/")
	err := apierrors.NewResourceExpired(expiredContinue)
	err.ErrStatus.Continue = encodeToken(t)
	return err
}

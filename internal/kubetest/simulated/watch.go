// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// watchTimeout is the least time that a watch without a timeout lasts. It lasts up to
	// twice that.
	watchTimeout = 30 * time.Minute
	// lastBookmark is how long before its end a watch receives a last bookmark.
	lastBookmark = 2 * time.Second
	// batch is how many changes a watch takes from the history at once.
	batch = 64
)

// watch is a running watch.
type watch struct {
	cluster   *Cluster
	query     *query
	lo, hi    int // the range of objects whose changes it sends
	initial   bool
	bookmarks bool
	ends      time.Time
	body      *body
	// version is the version up to which everything was sent.
	version uint32
}

// watch responds to a WATCH. It returns an error only if nothing was sent.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, q *query) error {
	c.stats.watches.Add(1)
	o := &q.options
	version, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return err
	}
	timeout := watchTimeout + rand.N(watchTimeout)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	t := &watch{cluster: c, query: q, bookmarks: o.AllowWatchBookmarks, ends: time.Now().Add(timeout)}
	t.initial = o.SendInitialEvents != nil && *o.SendInitialEvents
	t.lo, t.hi = q.resource.objects(c.population, q.namespace)
	if q.nothing {
		t.hi = t.lo
	}
	refused := t.position(ctx, version)
	contentType := q.media.encoding.contentType()
	if q.media.encoding == protobufEncoding {
		contentType += ";stream=watch"
	}
	t.body = c.begin(w, contentType, t.initial && t.bookmarks && acceptsGzip(r))
	w.(http.Flusher).Flush()
	c.stats.open.Add(1)
	defer c.stats.open.Add(-1)
	if refused != nil {
		t.body.close(t.fail(refused))
		return nil
	}
	err = t.run(ctx)
	if ctx.Err() != nil && r.Context().Err() == nil {
		err = nil // the timeout is a normal end
	}
	t.body.close(err)
	return nil
}

// position finds the version at which the watch begins.
func (t *watch) position(ctx context.Context, version int64) error {
	c := t.cluster
	if t.initial {
		if newest, ok := c.reach(ctx, uint64(version)); !ok {
			return tooLarge(uint64(version), newest)
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case version == 0:
		t.version = c.newest
	case version < firstVersion+int64(c.oldest):
		return tooOld(uint64(version), c.oldest)
	default:
		t.version = uint32(min(version-firstVersion, 1<<32-2))
	}
	return nil
}

// run sends events until ctx ends or the watch falls behind the history, which the client
// sees as a normal end.
func (t *watch) run(ctx context.Context) error {
	if t.initial {
		if err := t.sendInitial(); err != nil {
			return err
		}
	}
	bookmark := time.NewTimer(t.untilBookmark())
	defer bookmark.Stop()
	for {
		wait, ok, err := t.sendChanges()
		if err != nil || !ok {
			return err
		}
		select {
		case <-wait:
		case <-bookmark.C:
			if t.bookmarks {
				if err := t.sendBookmark(false); err != nil {
					return err
				}
			}
			bookmark.Reset(t.untilBookmark())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// untilBookmark returns the time until the next bookmark is due.
func (t *watch) untilBookmark() time.Duration {
	every := t.cluster.bookmarks
	if last := time.Until(t.ends) - lastBookmark; last > 0 {
		return min(every, last)
	}
	return every
}

// sendInitial sends all objects and, if the client wants bookmarks, the one that ends the
// initial events.
func (t *watch) sendInitial() error {
	s, _ := t.cluster.read(t.query.resource, t.lo, t.hi, 0)
	render := t.cluster.renderer(t.query.resource, t.query.media)
	for i, version := range s.versions {
		if version == 0 {
			continue
		}
		err := t.body.add(func(dst []byte) ([]byte, error) { return render.appendInitial(dst, t.lo+i, s.state(i)) })
		if err != nil {
			return err
		}
	}
	t.version = s.version
	if t.bookmarks {
		return t.sendBookmark(true)
	}
	return t.body.flush()
}

// sendChanges sends the changes since the last call and returns a channel to wait on. It
// returns false if the watch has fallen behind.
func (t *watch) sendChanges() (wait <-chan struct{}, ok bool, err error) {
	if !t.query.resource.pods {
		return nil, true, nil // nothing ever changes
	}
	var render *renderer
	for {
		var changes [batch]change
		n, from, wait, ok := t.cluster.since(t.version, changes[:])
		if n == 0 {
			if render != nil {
				err = t.body.flush()
			}
			return wait, ok, err
		}
		for i, change := range changes[:n] {
			t.version = from + uint32(i)
			if pod := int(change.pod); pod < t.lo || pod >= t.hi {
				continue
			}
			if render == nil {
				render = t.cluster.renderer(t.query.resource, t.query.media)
			}
			if err := t.body.add(func(dst []byte) ([]byte, error) {
				return render.appendChange(dst, change, t.version)
			}); err != nil {
				return nil, false, err
			}
		}
	}
}

// initialEnd is the annotation of the bookmark after the initial events.
const initialEnd = "k8s.io/initial-events-end"

// sendBookmark sends a bookmark with the version of the watch. A watch that waits for a
// future version has no version yet.
func (t *watch) sendBookmark(end bool) error {
	q := t.query
	newest := uint32(t.cluster.Version() - firstVersion)
	if t.version > newest {
		return nil
	}
	version := t.version
	if !q.resource.pods {
		version = newest
	}
	meta := metav1.ObjectMeta{ResourceVersion: formatVersion(version)}
	if end {
		meta.Annotations = map[string]string{initialEnd: "true"}
	}
	kind := q.resource.objectType()
	if q.media.partial() {
		kind = partialType
	}
	var raw []byte
	var err error
	if q.media.encoding == protobufEncoding {
		// Every kind has its metadata in the same field.
		raw, err = rawOf(protobufEncoding, &metav1.PartialObjectMetadata{ObjectMeta: meta})
	} else {
		raw, err = json.Marshal(meta)
		raw = append([]byte(`"metadata":`), raw...)
		if !q.media.partial() {
			raw = append(raw, q.resource.blank...)
		}
		raw = append(raw, '}')
	}
	if err != nil {
		return err
	}
	return t.send(eventBookmark, kind, raw)
}

// fail ends the watch with an event.
func (t *watch) fail(reason error) error {
	status := statusOf(reason)
	raw, err := rawOf(t.query.media.encoding, &status)
	if err != nil {
		return err
	}
	return t.send(eventError, statusType, raw)
}

// send sends an event immediately.
func (t *watch) send(event string, kind metav1.TypeMeta, raw []byte) error {
	a := t.query.media.encoding.event(event, kind, len(raw))
	for _, p := range [][]byte{a.before, raw, a.after} {
		if err := t.body.write(p); err != nil {
			return err
		}
	}
	return t.body.flush()
}

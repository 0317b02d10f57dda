// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

// question is a kind of request.
type question struct {
	name string
	form form
	// paths are asked one after the other, again and again.
	paths []string
	// paged says that a path is asked for page by page: each is a request.
	paged bool
	// clients ask at once, each with a connection of its own.
	clients int
	// items is how many objects all paths have together.
	items int
}

// pageSize is kubectl's and client-go's.
const pageSize = 500

// questions are what is measured with the first n pods of a workload.
func questions(w kubetest.Workload, n int) []question {
	const list = "/api/v1/pods?pretty=false"
	json, protobuf := form{accept: asJSON}, form{accept: asProtobuf}
	gets := question{name: "get one", form: json, clients: 4}
	spaces := question{name: "list a namespace", form: json, clients: 1}
	for i := 0; i < n && len(gets.paths) < 200; i += max(1, n/200) {
		pod := w.Pod(i)
		gets.paths = append(gets.paths, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"?pretty=false")
	}
	gets.items = len(gets.paths)
	perSpace := map[string]int{}
	third, app := 0, w.Pod(n / 2).Labels["app.kubernetes.io/name"]
	few := 0
	for i := range n {
		pod := w.Pod(i)
		perSpace[pod.Namespace]++
		if pod.Labels["app.kubernetes.io/component"] == "worker" {
			third++
		}
		if pod.Labels["app.kubernetes.io/name"] == app {
			few++
		}
	}
	for i := 0; i < n && len(spaces.paths) < 20; i += 10 {
		space := w.Pod(i).Namespace
		spaces.paths = append(spaces.paths, "/api/v1/namespaces/"+space+"/pods?pretty=false")
		spaces.items += perSpace[space]
	}
	return []question{
		{name: "json", form: json, paths: []string{list}, clients: 1, items: n},
		{name: "gzip", form: form{asJSON, true}, paths: []string{list}, clients: 1, items: n},
		{name: "protobuf", form: protobuf, paths: []string{list}, clients: 1, items: n},
		{name: "protobuf gzip", form: form{asProtobuf, true}, paths: []string{list}, clients: 1, items: n},
		{name: "page", form: json, paths: []string{list + fmt.Sprintf("&limit=%d", pageSize)}, paged: true, clients: 1, items: n},
		spaces,
		gets,
		{name: "label, a third", form: json, paths: []string{list + "&labelSelector=app.kubernetes.io/component=worker"}, clients: 1, items: third},
		{name: "label, ten", form: json, paths: []string{list + "&labelSelector=app.kubernetes.io/name=" + app}, clients: 1, items: few},
	}
}

// answered is what asking cost the server.
type answered struct {
	requests  int64
	bytes     int64
	cpu, wall time.Duration
	// cold is what the first cost of all.
	cold time.Duration
}

// each is the cost of a request.
func (a answered) each() time.Duration { return a.cpu / time.Duration(max(1, a.requests)) }

func (a answered) perSecond() float64 { return float64(a.requests) / a.wall.Seconds() }

// megabytes is the length of an answer.
func (a answered) megabytes() float64 { return float64(a.bytes) / float64(max(1, a.requests)) / 1e6 }

// verify asks every path once and looks at the answers: they must have all objects. It
// returns what the first answer cost the server.
func (q *question) verify(ctx context.Context, s *server) (cold time.Duration, err error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	items := 0
	for _, path := range q.paths {
		for next := path; next != ""; {
			body, err := s.ask(ctx, client, next, q.form)
			if err != nil {
				return 0, err
			}
			// The server must not wait for who looks.
			data, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil {
				return 0, err
			}
			if cold == 0 {
				after, err := s.cpu()
				if err != nil {
					return 0, err
				}
				cold = after - before
			}
			n, token, err := q.look(data)
			if err != nil {
				return 0, fmt.Errorf("%s %s: %w", s.name, next, err)
			}
			items += n
			if next = ""; q.paged && token != "" {
				next = path + "&continue=" + url.QueryEscape(token)
			}
		}
	}
	if items != q.items {
		return 0, fmt.Errorf("%s answers %s with %d objects, not %d", s.name, q.name, items, q.items)
	}
	return cold, nil
}

// look counts what an answer has.
func (q *question) look(data []byte) (items int, token string, err error) {
	var r io.Reader = bytes.NewReader(data)
	if q.form.gzip && isGzip(data) {
		if r, err = gzip.NewReader(r); err != nil {
			return 0, "", err
		}
	}
	encoding := wire.JSON
	if q.form.accept == asProtobuf {
		encoding = wire.Protobuf
	}
	if q.name == "get one" {
		_, err := wire.ReadObject(r, encoding, nil)
		return 1, "", err
	}
	list := wire.NewListReader(r, encoding, nil)
	for {
		_, err := list.Next()
		if errors.Is(err, io.EOF) {
			return items, list.Meta().Continue, nil
		}
		if err != nil {
			return items, "", err
		}
		items++
	}
}

// ask asks for so long, and at least once. Idle is what the server uses of its
// processors when it is not asked.
func (q *question) ask(ctx context.Context, s *server, d time.Duration, idle float64) (a answered, err error) {
	asked := make([]asker, q.clients)
	for i := range asked {
		if asked[i].client, err = s.client(); err != nil {
			return a, err
		}
		defer asked[i].client.CloseIdleConnections()
		asked[i].question, asked[i].server = q, s
		// A connection is not what is measured.
		if err := asked[i].once(ctx, q.paths[0]); err != nil {
			return a, err
		}
		asked[i].requests, asked[i].bytes = 0, 0
	}
	before, err := s.cpu()
	if err != nil {
		return a, err
	}
	began := time.Now()
	errs := make([]error, q.clients)
	var turn atomic.Int64
	var all sync.WaitGroup
	for i := range asked {
		all.Go(func() {
			for again := true; again && errs[i] == nil; again = time.Since(began) < d {
				errs[i] = asked[i].path(ctx, q.paths[int(turn.Add(1)-1)%len(q.paths)])
			}
		})
	}
	all.Wait()
	a.wall = time.Since(began)
	after, err := s.cpu()
	a.cpu = after - before - time.Duration(idle*float64(a.wall))
	for i := range asked {
		a.requests += asked[i].requests
		a.bytes += asked[i].bytes
	}
	return a, errors.Join(append(errs, err)...)
}

// asker is one client.
type asker struct {
	question *question
	server   *server
	client   *http.Client

	requests, bytes int64
	head            []byte // of the last answer
}

// path asks for a path, with all its pages if it has them.
func (a *asker) path(ctx context.Context, path string) error {
	for next := path; next != ""; {
		if err := a.once(ctx, next); err != nil {
			return err
		}
		if next = ""; a.question.paged {
			if token := continueOf(a.head); token != "" {
				next = path + "&continue=" + url.QueryEscape(token)
			}
		}
	}
	return nil
}

// once reads an answer and keeps its head.
func (a *asker) once(ctx context.Context, path string) error {
	body, err := a.server.ask(ctx, a.client, path, a.question.form)
	if err != nil {
		return err
	}
	defer body.Close()
	if a.head == nil {
		a.head = make([]byte, 0, 1<<10)
	}
	n, err := io.ReadFull(body, a.head[:cap(a.head)])
	a.head = a.head[:n]
	if err == nil {
		var more int64
		more, err = io.Copy(io.Discard, body)
		a.bytes += more
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // a short answer
	}
	a.requests++
	a.bytes += int64(n)
	return err
}

// continueOf is the token in the head of a list, which is before its items.
func continueOf(head []byte) string {
	head, _, _ = bytes.Cut(head, []byte(`"items":`))
	_, after, found := bytes.Cut(head, []byte(`"continue":"`))
	token, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended {
		return ""
	}
	return string(token)
}

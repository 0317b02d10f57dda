// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

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

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

// headBytes is how much of a response a client keeps, to find the continue token.
const headBytes = 1 << 10

// Query is a kind of request, sent again and again.
type Query struct {
	Name   string
	Format Format
	// Paths are requested one after the other, again and again.
	Paths []string
	// Single means that each path is one object, not a list.
	Single bool
	// Paged means that all pages of a path are requested. Each is a request.
	Paged bool
	// Clients send requests at once, each on a connection of its own.
	Clients int
	// Items is how many objects all paths have together.
	Items int
}

// QueryCost is what the requests of a query cost a server.
type QueryCost struct {
	Requests int64
	Bytes    int64
	CPU      time.Duration
	Wall     time.Duration
	// Cold is the processor time of the first request of its kind.
	Cold time.Duration
}

// Add adds another measurement. Cold stays.
func (c *QueryCost) Add(other QueryCost) {
	c.Requests += other.Requests
	c.Bytes += other.Bytes
	c.CPU += other.CPU
	c.Wall += other.Wall
}

// Each returns the processor time of one request.
func (c QueryCost) Each() time.Duration { return c.CPU / time.Duration(max(1, c.Requests)) }

// PerSecond returns the number of requests per second.
func (c QueryCost) PerSecond() float64 { return float64(c.Requests) / c.Wall.Seconds() }

// Megabytes returns the length of one response.
func (c QueryCost) Megabytes() float64 {
	return float64(c.Bytes) / float64(max(1, c.Requests)) / 1e6
}

// Verify requests every path once and checks that the responses have all objects. It
// returns the processor time of the first response.
func (q *Query) Verify(ctx context.Context, s *Server) (cold time.Duration, err error) {
	client, err := s.Client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	before, err := s.CPU()
	if err != nil {
		return 0, err
	}
	items := 0
	for _, path := range q.Paths {
		for next := path; next != ""; {
			body, err := s.Get(ctx, client, next, q.Format)
			if err != nil {
				return 0, err
			}
			// Everything is read before it is checked, so that the server does not wait.
			data, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil {
				return 0, err
			}
			if cold == 0 {
				after, err := s.CPU()
				if err != nil {
					return 0, err
				}
				cold = after - before
			}
			n, token, err := q.parse(data)
			if err != nil {
				return 0, fmt.Errorf("%s %s: %w", s.Name, next, err)
			}
			items += n
			next = q.nextPage(path, token)
		}
	}
	if items != q.Items {
		return 0, fmt.Errorf("%s answers %s with %d objects, not %d", s.Name, q.Name, items, q.Items)
	}
	return cold, nil
}

// nextPage returns the path of the page at a continue token, "" if there is none.
func (q *Query) nextPage(path, token string) string {
	if !q.Paged || token == "" {
		return ""
	}
	return path + "&continue=" + url.QueryEscape(token)
}

// parse counts the objects of a response and returns its continue token.
func (q *Query) parse(data []byte) (items int, token string, err error) {
	var r io.Reader = bytes.NewReader(data)
	if q.Format.Gzip && isGzip(data) {
		if r, err = gzip.NewReader(r); err != nil {
			return 0, "", err
		}
	}
	encoding := wire.JSON
	if q.Format.Accept == Protobuf {
		encoding = wire.Protobuf
	}
	if q.Single {
		_, err := stream.ReadObject(r, encoding, nil)
		return 1, "", err
	}
	list := stream.NewListReader(r, encoding, nil)
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

// Run sends requests for the time d, at least one per client. idle is how many
// processors the server uses without them, and is subtracted.
func (q *Query) Run(ctx context.Context, s *Server, d time.Duration, idle float64) (c QueryCost, err error) {
	clients := make([]queryClient, q.Clients)
	for i := range clients {
		if clients[i].client, err = s.Client(); err != nil {
			return c, err
		}
		defer clients[i].client.CloseIdleConnections()
		clients[i].query, clients[i].server = q, s
		// Opening the connection is not part of the measurement.
		if err := clients[i].get(ctx, q.Paths[0]); err != nil {
			return c, err
		}
		clients[i].requests, clients[i].bytes = 0, 0
	}
	before, err := s.CPU()
	if err != nil {
		return c, err
	}
	began := time.Now()
	errs := make([]error, q.Clients)
	var turn atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for again := true; again && errs[i] == nil; again = time.Since(began) < d {
				errs[i] = clients[i].getPages(ctx, q.Paths[int(turn.Add(1)-1)%len(q.Paths)])
			}
		})
	}
	all.Wait()
	c.Wall = time.Since(began)
	after, err := s.CPU()
	c.CPU = after - before - time.Duration(idle*float64(c.Wall))
	for i := range clients {
		c.Requests += clients[i].requests
		c.Bytes += clients[i].bytes
	}
	return c, errors.Join(append(errs, err)...)
}

// queryClient is one client of a query.
type queryClient struct {
	query  *Query
	server *Server
	client *http.Client

	requests int64
	bytes    int64
	// head is the beginning of the last response.
	head []byte
}

// getPages requests a path, with all its pages if the query is paged.
func (c *queryClient) getPages(ctx context.Context, path string) error {
	for next := path; next != ""; {
		if err := c.get(ctx, next); err != nil {
			return err
		}
		if !c.query.Paged {
			return nil
		}
		next = c.query.nextPage(path, continueToken(c.head))
	}
	return nil
}

// get reads a response and keeps its head.
func (c *queryClient) get(ctx context.Context, path string) error {
	body, err := c.server.Get(ctx, c.client, path, c.query.Format)
	if err != nil {
		return err
	}
	defer body.Close()
	if c.head == nil {
		c.head = make([]byte, 0, headBytes)
	}
	n, err := io.ReadFull(body, c.head[:cap(c.head)])
	c.head = c.head[:n]
	if err == nil {
		var more int64
		more, err = io.Copy(io.Discard, body)
		c.bytes += more
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // the whole response is shorter than a head
	}
	c.requests++
	c.bytes += int64(n)
	return err
}

// continueToken returns the token in the head of a list, where it precedes the items.
func continueToken(head []byte) string {
	head, _, _ = bytes.Cut(head, []byte(`"items":`))
	_, after, found := bytes.Cut(head, []byte(`"continue":"`))
	token, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended {
		return ""
	}
	return string(token)
}

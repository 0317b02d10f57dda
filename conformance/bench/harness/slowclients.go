// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// slowPiece is how many bytes a slow client reads at a time.
const slowPiece = 256 << 10

// SlowClients are clients that send the same request at once and read the response
// slowly.
type SlowClients struct {
	Clients int
	// Rate is the largest number of bytes per second that each reads.
	Rate int
}

// SlowCost is the effect of slow clients on a server.
type SlowCost struct {
	// Settled is the RSS before the requests, and Peak the largest RSS during them, in
	// bytes.
	Settled, Peak uint64
	Wall          time.Duration
	// Failed is how many clients did not receive the whole response, and Err is one of
	// the reasons.
	Failed int
	Err    error
}

// Growth returns by how many bytes the RSS has grown.
func (c *SlowCost) Growth() float64 { return max(0, float64(c.Peak)-float64(c.Settled)) }

// Run sends the requests and waits until all clients have ended. A client that fails
// is counted and does not fail the measurement.
func (s SlowClients) Run(ctx context.Context, server *Server, path string, f Format) (c SlowCost, err error) {
	if c.Settled, err = server.SettledMemory(); err != nil {
		return c, err
	}
	lengths, errs := make([]int64, s.Clients), make([]error, s.Clients)
	began := time.Now()
	c.Peak, err = server.PeakMemory(func() error {
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { lengths[i], errs[i] = s.read(ctx, server, path, f) })
		}
		all.Wait()
		return nil
	})
	c.Wall = time.Since(began)
	whole := slices.Max(lengths)
	for i, failed := range errs {
		if failed == nil && lengths[i] < whole {
			failed = io.ErrUnexpectedEOF
		}
		if failed != nil {
			c.Failed++
			c.Err = failed
		}
	}
	return c, err
}

// read reads a response slowly and returns its length.
func (s SlowClients) read(ctx context.Context, server *Server, path string, f Format) (length int64, err error) {
	client, err := server.Client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	body, err := server.Get(ctx, client, path, f)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	began := time.Now()
	for {
		n, err := io.CopyN(io.Discard, body, slowPiece)
		length += n
		if errors.Is(err, io.EOF) {
			return length, nil
		}
		if err != nil {
			return length, err
		}
		time.Sleep(time.Until(began.Add(time.Duration(float64(length) / float64(s.Rate) * float64(time.Second)))))
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// pressClients list everything at once, each reading pressPace bytes per second
	// at most.
	pressClients, pressPace = 50, 20 << 20
	pressPiece              = 256 << 10
)

// pressure is what many slow clients at once do to a server.
type pressure struct {
	// steady is the RSS before, peak the most meanwhile.
	steady, peak uint64
	wall         time.Duration
	// failed is how many did not get the whole list, and why is one of the reasons.
	failed int
	why    error
}

func (c *pressure) growth() float64 { return max(0, float64(c.peak)-float64(c.steady)) }

// press lists everything at once with many clients. A server may fail some of them:
// that is counted.
func press(ctx context.Context, s *server, q *question) (c pressure, err error) {
	if c.steady, err = s.steady(); err != nil {
		return c, err
	}
	lengths, errs := make([]int64, pressClients), make([]error, pressClients)
	began := time.Now()
	c.peak, err = s.peak(func() error {
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { lengths[i], errs[i] = readSlowly(ctx, s, q) })
		}
		all.Wait()
		return nil
	})
	c.wall = time.Since(began)
	whole := slices.Max(lengths)
	for i, failed := range errs {
		if failed == nil && lengths[i] < whole {
			failed = io.ErrUnexpectedEOF
		}
		if failed != nil {
			c.failed++
			c.why = failed
		}
	}
	return c, err
}

// readSlowly reads an answer, and returns how long it was.
func readSlowly(ctx context.Context, s *server, q *question) (length int64, err error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	body, err := s.ask(ctx, client, q.paths[0], q.form)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	began := time.Now()
	for {
		n, err := io.CopyN(io.Discard, body, pressPiece)
		length += n
		if errors.Is(err, io.EOF) {
			return length, nil
		}
		if err != nil {
			return length, err
		}
		time.Sleep(time.Until(began.Add(time.Duration(float64(length) / pressPace * float64(time.Second)))))
	}
}

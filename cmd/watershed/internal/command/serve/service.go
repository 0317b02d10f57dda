// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
)

// service is a set of servers, and of parts that they read from, that run together. If one
// fails, all end.
type service struct {
	servers []func(context.Context) error
	parts   []func(context.Context) error
	logger  *slog.Logger
}

// run runs everything until ctx ends or one of them fails, and returns that error. The
// servers end first, with the requests that they serve, and the parts after them. The log
// says why and how far the service has ended.
func (s *service) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	start := func(ctx context.Context, running *sync.WaitGroup, run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				stop(err)
			}
		})
	}
	var serving, reading sync.WaitGroup
	for _, run := range s.parts {
		start(parts, &reading, run)
	}
	for _, run := range s.servers {
		start(ctx, &serving, run)
	}
	<-ctx.Done()
	s.logger.Info("stopping: requests may finish", "cause", context.Cause(ctx))
	serving.Wait()
	s.logger.Info("all requests have ended")
	end()
	reading.Wait()
	s.logger.Info("stopped")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recorded returns a part that runs another part and its recorder, which ends after it: the
// end of a part is recorded too. The end of a replica ends WebSockets, which have audit
// events, and the end of a fleet leaves changes to be written.
func recorded(part, recorder func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		recording, end := context.WithCancel(context.WithoutCancel(ctx))
		var running sync.WaitGroup
		var failed error
		running.Go(func() { failed = recorder(recording) })
		err := part(ctx)
		end()
		running.Wait()
		return errors.Join(err, failed)
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed"
)

// minimumResync is the minimum resync period, as in client-go.
const minimumResync = time.Second

// registration is a handler that was added to an informer.
type registration struct {
	informer *informer
	name     string
	handle   *watershed.Registration
	// synced is the Synced channel of the only run.
	synced <-chan struct{}
}

// HasSynced reports whether the handler has received all objects that existed when it was
// added.
func (r *registration) HasSynced() bool { return isClosed(r.synced) }

// HasSyncedChecker returns a checker that is done when HasSynced is true.
func (r *registration) HasSyncedChecker() cache.DoneChecker {
	return done{
		name: fmt.Sprintf("%s + event handler %s", r.informer.HasSyncedChecker().Name(), r.name), when: r.synced,
	}
}

// ShutdownChan returns a channel that is closed when the handler was removed and will not
// be called again. [cache.ShutDownEventHandler] waits for it.
func (r *registration) ShutdownChan() <-chan struct{} { return r.handle.Done() }

// AddEventHandler adds a handler with the informer's resync period.
func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler with a resync period of its own.
func (i *informer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions adds a handler.
func (i *informer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because it has stopped already", handler)
	}
	name := fmt.Sprintf("%T", handler)
	logger := klogger(i.logs)
	if options.Logger != nil {
		logger = *options.Logger
	}
	h := adapt(handler, logger)
	h.Name = name
	if h.Resync = i.resyncLocked(logger, options.ResyncPeriod); h.Resync == 0 {
		h.Resync = -1
	}
	r := &registration{informer: i, name: name, handle: i.engine.Handle(h)}
	r.synced = r.handle.Synced()
	return r, nil
}

// resyncLocked returns a handler's resync period, 0 for never. An informer made without a
// period never resyncs. A running one does not resync more often than the handlers added
// before required.
func (i *informer) resyncLocked(logger klog.Logger, wanted *time.Duration) time.Duration {
	warn := logger.Info
	period := i.resync
	if wanted != nil {
		period = *wanted
	}
	switch {
	case period <= 0:
		return 0
	case i.shortest == 0:
		warn("this informer does not resync", "wanted", period)
		return 0
	case period < minimumResync:
		warn("resync period is too short", "wanted", period, "given", minimumResync)
		period = minimumResync
	}
	if period < i.shortest && i.started {
		warn("resync period is shorter than that of the running informer", "wanted", period, "given", i.shortest)
		return i.shortest
	}
	i.shortest = min(i.shortest, period)
	return period
}

// RemoveEventHandler removes a handler. It ignores a handler that was removed before or
// that belongs to another informer.
func (i *informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return fmt.Errorf("invalid key type %T", handle)
	}
	if r.informer == i {
		r.handle.Close()
	}
	return nil
}

// crashPause is how long client-go waits after a handler has panicked before it calls the
// handler again.
const crashPause = time.Second

// crash handles the panics of one handler, whose calls do not overlap, as client-go does:
// it runs the [utilruntime.PanicHandlers], and then the program ends unless
// [utilruntime.ReallyCrash] is false.
type crash struct {
	logger  klog.Logger
	pending bool
}

// callDepth is the number of calls between a panic handler and the function that
// panicked: of panicked, of the engine's deferred function and of the runtime. Logs are
// attributed to that function.
const callDepth = 4

// panicked implements Panicked of [watershed.Handler].
func (c *crash) panicked(value any) {
	c.pending = true
	ctx := klog.NewContext(context.Background(), c.logger.WithCallDepth(callDepth))
	for _, handle := range utilruntime.PanicHandlers {
		handle(ctx, value)
	}
	if utilruntime.ReallyCrash {
		panic(value)
	}
}

// pause waits if the last call panicked.
func (c *crash) pause() {
	if c.pending {
		c.pending = false
		time.Sleep(crashPause)
	}
}

// adapt converts a client-go handler. Nothing is decoded for functions that are nil.
func adapt(handler cache.ResourceEventHandler, logger klog.Logger) watershed.Handler[runtime.Object] {
	c := &crash{logger: logger}
	h := watershed.Handler[runtime.Object]{
		Add: func(obj runtime.Object, initial bool) {
			c.pause()
			handler.OnAdd(obj, initial)
		},
		Update: func(old, now runtime.Object) {
			c.pause()
			handler.OnUpdate(old, now)
		},
		Delete: func(last runtime.Object, seen bool) {
			c.pause()
			if seen {
				handler.OnDelete(last)
			} else {
				handler.OnDelete(cache.DeletedFinalStateUnknown{Key: keyOf(last), Obj: last})
			}
		},
		Panicked: c.panicked,
	}
	var add, update, del bool
	switch f := handler.(type) {
	case cache.ResourceEventHandlerFuncs:
		add = f.AddFunc != nil
		update = f.UpdateFunc != nil
		del = f.DeleteFunc != nil
	case *cache.ResourceEventHandlerFuncs:
		add = f.AddFunc != nil
		update = f.UpdateFunc != nil
		del = f.DeleteFunc != nil
	case cache.ResourceEventHandlerDetailedFuncs:
		add = f.AddFunc != nil
		update = f.UpdateFunc != nil
		del = f.DeleteFunc != nil
	case *cache.ResourceEventHandlerDetailedFuncs:
		add = f.AddFunc != nil
		update = f.UpdateFunc != nil
		del = f.DeleteFunc != nil
	default:
		return h
	}
	if !add {
		h.Add = nil
	}
	if !update {
		h.Update = nil
	}
	if !del {
		h.Delete = nil
	}
	return h
}

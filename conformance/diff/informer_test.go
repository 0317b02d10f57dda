// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// informers is an informer of each side, of the same model.
type informers struct {
	*sequence
	model  *model
	ours   *watershed.Informer[*corev1.Pod]
	theirs cache.SharedIndexInformer
	// client is whether client-go's client reports that it cannot stream.
	client bool
	// transform means that there is a transform, and strict that it refuses some pods.
	transform, strict bool
	// resync is how often handlers receive everything again, 0 for never.
	resync time.Duration

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	readers []*pair
	ourIdx  map[string]*watershed.Index[*corev1.Pod, string]
	// gone are the readers that were closed, and seen some snapshots.
	gone []*pair
	seen []sight
	did  *tally
}

// pair is a reader of each side that joined at the same time.
type pair struct {
	ours, theirs *reader
	// before is the state that both had at the last comparison.
	before map[string]known
	// never means that it is not resynced.
	never bool
	// close ends both. synced report whether they have received the first state, and are
	// nil for a loop.
	close       func()
	ourSynced   func() bool
	theirSynced func() bool
}

// sight is a snapshot of ours with its content at the time when it was taken.
type sight struct {
	snapshot watershed.Snapshot[*corev1.Pod]
	text     string
}

// tally counts the steps of all histories of a run, to show that they occurred.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what] += n
}

// TestInformer runs histories of a server, with all possible failures of requests, with
// an informer of each side. After each step it compares the calls of the handlers, the
// objects, the indexes and the version.
func TestInformer(t *testing.T) {
	did := tally{n: map[string]int{}}
	playAll(t, 5000, func(s *sequence) {
		var failure string
		synctest.Test(t, func(*testing.T) {
			failure = s.play(func(s *sequence) {
				x := newInformers(s, &did)
				defer x.end()
				x.live()
			})
		})
		if failure != "" {
			panic(mismatch{failure})
		}
	})
	t.Log(did.n)
	if *seedFlag != 0 || t.Failed() {
		return
	}
	for _, what := range []string{
		"initial additions", "additions", "updates", "deletions seen", "deletions missed", "objects given again",
		"pods made anew",
		"pods refused", "indexes", "loops", "states listed", "states streamed", "watches resumed where client-go lists",
	} {
		if did.n[what] == 0 {
			t.Errorf("no history had any %s", what)
		}
	}
}

var (
	podKeys = []string{"a/1", "a/2", "ab/1", "b/1", "b/2", "c"}
	nodes   = []string{"", "node-1", "node-2"}
	apps    = []string{"web", "db"}
	tiers   = []string{"front", "back"}
	phases  = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}
)

const noResync = -1

// indexFuncs are the functions of the indexes.
var indexFuncs = map[string]func(*corev1.Pod) []string{
	"node": func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} },
	"labels": func(p *corev1.Pod) []string {
		return []string{"app=" + p.Labels["app"], "tier=" + p.Labels["tier"], "app=" + p.Labels["app"]}
	},
	"bound": func(p *corev1.Pod) []string {
		if p.Spec.NodeName == "" {
			return nil
		}
		return []string{string(p.Status.Phase)}
	},
}

func theirIndexFunc(name string) cache.IndexFunc {
	return func(obj any) ([]string, error) { return indexFuncs[name](obj.(*corev1.Pod)), nil }
}

// cut returns the transform of both sides. It can be applied to its own output.
func cut(strict bool) func(*corev1.Pod) (*corev1.Pod, error) {
	return func(p *corev1.Pod) (*corev1.Pod, error) {
		if strict && p.Labels["tier"] == "bad" {
			return nil, errTransform
		}
		delete(p.Annotations, "noise")
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations["transformed"] = "yes"
		return p, nil
	}
}

func newInformers(s *sequence, did *tally) *informers {
	x := &informers{
		sequence: s, model: newModel(), did: did, ourIdx: map[string]*watershed.Index[*corev1.Pod, string]{},
	}
	w := x.model
	if s.chance(2) {
		w.encoding = wire.JSON
	}
	w.streaming = s.chance(2)
	x.client = !w.streaming && s.chance(2)
	if s.chance(3) {
		w.chunk = 2 + s.IntN(2)
	}
	x.transform = s.chance(3)
	x.strict = x.transform && s.chance(2)
	if s.chance(3) {
		x.resync = time.Duration(5+s.IntN(10)) * time.Minute
	}
	x.step("%v, streaming %v (client %v), chunk %d, transform %v strict %v, resync %v", w.encoding, w.streaming,
		x.client, w.chunk, x.transform, x.strict, x.resync)

	opts := &watershed.SourceOptions[*corev1.Pod]{
		Resync: x.resync,
		Logger: slog.New(slog.DiscardHandler),
		// The model neither ends its streams by itself nor sends bookmarks.
		Reflector: reflector.Options{PageSize: 100, Timeout: 1000 * time.Hour, Silence: 1000 * time.Hour},
	}
	if x.transform {
		opts.Transform = cut(x.strict)
	}
	x.ours = watershed.FromSource(ourSource{w.ours}, opts)
	x.theirs = cache.NewSharedIndexInformerWithOptions(newTheirClient(w.theirs, x.client), &corev1.Pod{},
		cache.SharedIndexInformerOptions{
			ResyncPeriod: x.resync, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	if x.transform {
		noError(x.theirs.SetTransform(func(obj any) (any, error) { return cut(x.strict)(obj.(*corev1.Pod)) }))
	}
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x
}

// noError is must for a sequence.
func noError(err error) {
	if err != nil {
		panic(err)
	}
}

// end stops both and waits for them.
func (x *informers) end() {
	x.stop()
	x.model.release()
	x.running.Wait()
}

// live runs one history.
func (x *informers) live() {
	for range x.IntN(2) + 1 {
		x.join()
	}
	for x.chance(2) {
		x.index()
	}
	for range x.IntN(8) {
		x.writeAny()
	}
	x.start()
	for range 6 + x.IntN(10) {
		switch op := x.IntN(24); {
		case op < 8:
			x.writes()
		case op < 13:
			x.disconnect()
		case op < 14:
			x.step("bookmark")
			x.model.bookmark()
			x.settle()
			x.compare(inOrder)
		case op < 17:
			x.anomaly()
		case op < 18 && len(x.readers) < 4:
			x.join()
			x.settle()
			x.compare(byObject)
		case op < 19:
			x.leave()
		case op < 20:
			x.index()
			x.settle()
			x.compare(inOrder)
		case op < 21:
			x.resyncs()
		case op < 23:
			x.relistWhileWriting()
		default:
			x.seen = append(x.seen, sight{x.ours.Snapshot(), ourObjects(x.ours.Snapshot())})
		}
	}
	x.finish()
}

// start runs both informers, perhaps against a server that fails.
func (x *informers) start() {
	w := x.model
	exact := true
	if x.chance(4) && !x.strict {
		w.lag = x.IntN(4)
		exact = w.lag == 0
	}
	if x.chance(4) {
		x.faults(broken, gone, busy, refused, internal)
	}
	if x.chance(4) {
		x.step("tokens expire")
		w.ours.tokens, w.theirs.tokens = []fault{gone}, []fault{gone}
	}
	x.repair()
	x.step("start, lists of any state are %d behind", w.lag)
	x.check("HasSynced before the start", strconv.FormatBool(x.ours.HasSynced()),
		strconv.FormatBool(x.theirs.HasSynced()))
	x.running.Go(func() { noError(x.ours.Run(x.ctx)) })
	x.running.Go(func() { x.theirs.RunWithContext(x.ctx) })
	x.settle()
	w.lag, w.ours.tokens, w.theirs.tokens = 0, nil, nil
	x.check("HasSynced", strconv.FormatBool(x.ours.HasSynced()), strconv.FormatBool(x.theirs.HasSynced()))
	if exact {
		x.compare(byObject)
		return
	}
	w.bookmark() // one side may have streamed the state, and be ahead
	x.settle()
	x.compare(nil)
}

// settle waits until both sides watch, or are held, and have nothing left to do.
func (x *informers) settle() {
	for range 2000 {
		synctest.Wait()
		if x.model.settled() {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	o, t := x.model.ours, x.model.theirs
	panic(mismatch{
		fmt.Sprintf("a side does not come back: ours watches %v, client-go watches %v; ours %+v", o.stream != nil,
			t.stream != nil, x.ours.Status().Reflector),
	})
}

// calm lets the backoff of both sides end.
func (x *informers) calm() { time.Sleep(150 * time.Second) }

// faults sets the outcomes of the next requests of both sides.
func (x *informers) faults(of ...fault) {
	var faults []fault
	for range 1 + x.IntN(3) {
		faults = append(faults, of[x.IntN(len(of))])
	}
	x.step("the next requests fail: %v", faults)
	x.model.ours.faults, x.model.theirs.faults = slices.Clone(faults), slices.Clone(faults)
}

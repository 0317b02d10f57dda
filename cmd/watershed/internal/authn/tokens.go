// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/cmd/watershed/internal/lru"
)

const (
	// maxAccepted and maxAcceptedBytes limit the tokens that are remembered as valid. One
	// takes about 600 bytes if its user has few groups.
	maxAccepted, maxAcceptedBytes = 4096, 4 << 20
	// maxRefused limits the tokens that are remembered as refused. One takes about 250
	// bytes. They have a cache of their own: a flood of them must not evict valid ones.
	maxRefused = 4096
	// maxReviews is how many checks of unknown tokens run at once. As many again may run
	// for tokens that were valid before.
	maxReviews = 16
	// maxWaiting is how many checks of unknown tokens may run or wait for a slot.
	maxWaiting = 128
	// slotWait is how long the check of an unknown token waits for a slot.
	slotWait = time.Second
	// recheckAge is the age in which Reauthenticate still uses the result of another
	// check: many watches can have one token.
	recheckAge = 2 * time.Second
)

// tokenKey is the HMAC of a token. Its key is random and does not leave the process, so
// the cache contains no token, and the time of a lookup does not depend on one that a
// caller could have chosen.
type tokenKey [sha256.Size]byte

// tokens checks bearer tokens and remembers the results. Each cluster has its own, so the
// cluster is not part of the key. Checks run in goroutines that close waits for.
type tokens struct {
	review       func(context.Context, string) (*Identity, error)
	trouble      string // the message of a 503 that review did not return
	ttl, timeout time.Duration
	hashes       sync.Pool // of hash.Hash: making an HMAC costs more than using it
	limiter      *limiter

	unknown, known chan struct{} // the slots of checks that run
	answered       atomic.Int64  // when a check last had a result, in ns since 1970

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	accepted *lru.Map[tokenKey, accepted]
	refused  *lru.Map[tokenKey, verdict]
	checks   map[tokenKey]*check // that run or wait: at most maxWaiting and maxAccepted
	waiting  int                 // checks of unknown tokens
	stats    Stats
}

// Stats counts the work of a [Cluster] with tokens.
type Stats struct {
	// Hits counts tokens whose result was known, and Checks those that the cluster checked.
	// Callers that wait for the check of another are in neither.
	Hits, Checks uint64
	// Limited counts tokens that were not checked because there were too many unknown ones.
	Limited uint64
}

// verdict is when a token was checked and how long the result is used.
type verdict struct{ since, until time.Time }

// accepted is a token that was valid. It is kept after its time, because a token that was
// valid before is checked again without regard to the limits for unknown ones.
type accepted struct {
	verdict
	id *Identity
}

// check is one check that all callers with the token wait for.
type check struct {
	done chan struct{}
	id   *Identity
	err  error
}

func newTokens(
	ttl, timeout time.Duration, trouble string, review func(context.Context, string) (*Identity, error),
) *tokens {
	t := &tokens{
		review: review, trouble: trouble, ttl: ttl, timeout: timeout, limiter: newLimiter(),
		unknown: make(chan struct{}, maxReviews), known: make(chan struct{}, maxReviews),
		accepted: lru.New[tokenKey](maxAccepted, maxAcceptedBytes, func(a accepted) int { return a.id.size() }),
		refused:  lru.New[tokenKey](maxRefused, maxRefused, func(verdict) int { return 1 }),
		checks:   map[tokenKey]*check{},
	}
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	t.hashes.New = func() any { return hmac.New(sha256.New, secret) }
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// close cancels the checks and waits for them.
func (t *tokens) close() {
	t.mu.Lock()
	t.cancel()
	t.mu.Unlock()
	t.all.Wait()
}

// authenticate returns the identity behind a token, from the cache or by a check.
func (t *tokens) authenticate(ctx context.Context, token, address string) (*Identity, error) {
	return t.lookup(ctx, token, source{address: network(address)}, t.ttl, false)
}

// again checks a token that was valid before. It returns a 401 or a 503, not a 429.
func (t *tokens) again(ctx context.Context, token string) (*Identity, error) {
	id, err := t.lookup(ctx, token, source{}, min(recheckAge, t.ttl), true)
	if apierrors.IsTooManyRequests(err) { // another caller has started the check
		err = unavailable(t.trouble)
	}
	return id, err
}

// lookup returns the identity behind a token. It uses a result that is younger than age.
// A known token is one that was valid before.
func (t *tokens) lookup(
	ctx context.Context, token string, from source, age time.Duration, known bool,
) (*Identity, error) {
	key := t.key(token)
	now := time.Now()
	t.mu.Lock()
	a, ok := t.accepted.Get(key)
	known = known || ok
	if ok && a.serves(now, age) {
		t.stats.Hits++
		t.mu.Unlock()
		return a.id, nil
	}
	if v, ok := t.refused.Get(key); ok && v.serves(now, age) {
		t.stats.Hits++
		t.mu.Unlock()
		return nil, unauthorized()
	}
	c, err := t.startLocked(key, token, from, known, now)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.id, c.err
	case <-ctx.Done():
		return nil, unavailable(t.trouble)
	}
}

func (v verdict) serves(now time.Time, age time.Duration) bool {
	return now.Before(v.until) && now.Sub(v.since) < age
}

func (t *tokens) key(token string) (key tokenKey) {
	h := t.hashes.Get().(hash.Hash)
	defer t.hashes.Put(h)
	h.Reset()
	h.Write([]byte(token))
	h.Sum(key[:0])
	return key
}

// startLocked returns the check of the token, which it starts unless it runs already.
func (t *tokens) startLocked(key tokenKey, token string, from source, known bool, now time.Time) (*check, error) {
	if c := t.checks[key]; c != nil {
		return c, nil
	}
	if t.ctx.Err() != nil {
		return nil, unavailable(t.trouble)
	}
	if !known {
		if t.waiting >= maxWaiting || !t.limiter.allow(from, now) {
			t.stats.Limited++
			return nil, tooMany()
		}
		t.waiting++
	}
	t.stats.Checks++
	c := &check{done: make(chan struct{})}
	t.checks[key] = c
	t.all.Go(func() { t.run(c, key, token, from, known) })
	return c, nil
}

// run makes one check and remembers its result.
func (t *tokens) run(c *check, key tokenKey, token string, from source, known bool) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	c.id, c.err = t.inSlot(ctx, token, known)
	if c.err == nil && !known {
		t.limiter.refund(from)
	}
	t.mu.Lock()
	t.rememberLocked(c, key, begin)
	delete(t.checks, key)
	if !known {
		t.waiting--
	}
	t.mu.Unlock()
	close(c.done)
}

// inSlot makes the check when a slot is free. If none becomes free, there are too many
// unknown tokens only if other checks have had results in the meantime.
func (t *tokens) inSlot(ctx context.Context, token string, known bool) (*Identity, error) {
	slots, limit := t.unknown, slotWait
	if known {
		slots, limit = t.known, t.timeout
	}
	begin := time.Now()
	wait := time.NewTimer(limit)
	defer wait.Stop()
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, unavailable(t.trouble)
	case <-wait.C:
		if known || t.answered.Load() < begin.UnixNano() {
			return nil, unavailable(t.trouble)
		}
		return nil, tooMany()
	}
	defer func() { <-slots }()
	id, err := t.review(ctx, token)
	if err == nil || apierrors.IsUnauthorized(err) {
		t.answered.Store(time.Now().UnixNano())
	}
	return id, err
}

// rememberLocked keeps a result from the time on at which its check began. It keeps
// nothing if it is not known whether the token is valid.
func (t *tokens) rememberLocked(c *check, key tokenKey, begin time.Time) {
	v := verdict{since: begin, until: begin.Add(t.ttl)}
	switch {
	case c.err == nil:
		if exp := c.id.Expires; !exp.IsZero() && exp.Before(v.until) {
			v.until = exp
		}
		t.refused.Remove(key)
		t.accepted.Put(key, accepted{v, c.id})
	case apierrors.IsUnauthorized(c.err):
		t.accepted.Remove(key)
		t.refused.Put(key, v)
	}
}

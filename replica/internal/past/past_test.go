// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package past

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// TestPastBudget_isFair has users that never release what they have taken: each gets less
// than the ones before it, and a user that has nothing is served.
func TestPastBudget_isFair(t *testing.T) {
	const each = 1000
	const limit = pastObjects - pastObjects%(4*each)
	b := respond.NewBudget(limit)
	all := func(user string) (n int) {
		for {
			if _, err := takeObjects(b, user, each); err != nil {
				if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok ||
					seconds == 0 {
					t.Fatalf("not a 429 with Retry-After: %v", err)
				}
				return n
			}
			n++
		}
	}
	most := limit / each
	if n := all("first"); n != most/2 {
		t.Errorf("the first user has %d of %d", n, most)
	}
	if n := all("second"); n != most/4 {
		t.Errorf("the second user has %d of %d", n, most)
	}
	if n := all("third"); n == 0 {
		t.Error("a user that has nothing is not served")
	}
}

// TestPastBudget_releasesWhatItTook has a request for more than there is.
func TestPastBudget_releasesWhatItTook(t *testing.T) {
	b := respond.NewBudget(pastObjects)
	for range 10 {
		taken, err := takeObjects(b, "user", 100*pastObjects)
		if err != nil {
			t.Fatal(err)
		}
		if taken := b.Taken(); taken != mostPastObjects {
			t.Errorf("%d objects are taken", taken)
		}
		b.Release("user", taken)
	}
	if b.Taken() != 0 {
		t.Errorf("%d objects are taken", b.Taken())
	}
}

// TestDescribe_missing gives missing changes a time, by which clients sort.
func TestDescribe_missing(t *testing.T) {
	at := time.Date(2026, 11, 18, 9, 0, 0, 0, time.UTC)
	if c := describe(&history.PastChange{Time: at}, errors.New("gone")); c.Type != "MISSING" || c.Message != "gone" ||
		!c.Time.Equal(at) {
		t.Errorf("%+v", c)
	}
}

// TestMerged merges random changes of several clusters: they are in the order of their times, and
// those of each cluster in the order in which it has them, also if its clock was set back.
func TestMerged(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []*memberChanges
		want, back := map[string][]string{}, int(seed%2)*5
		for i := range r.IntN(6) {
			c := &memberChanges{cluster: fmt.Sprint("c", i)}
			at, changes := time.Unix(0, 0), r.IntN(12)
			n := 0
			c.next = func() (history.PastChange, error, bool) {
				if n == changes {
					return history.PastChange{}, nil, false
				}
				n++
				at = at.Add(time.Duration(r.IntN(50) - back))
				err := fmt.Errorf("gap %d at %v", n, at.UnixNano())
				want[c.cluster] = append(want[c.cluster], err.Error())
				return history.PastChange{Time: at}, err, true
			}
			all = append(all, c)
		}
		got, last := map[string][]string{}, time.Time{}
		for change := range merged(all) {
			got[change.Cluster] = append(got[change.Cluster], change.Message)
			if back == 0 && change.Time.Before(last) {
				t.Fatalf("seed %d: a change of %s at %v after one at %v", seed, change.Cluster, change.Time, last)
			}
			last = change.Time
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v, want %v", seed, got, want)
		}
	}
}

// TestPastPlace_hold reads a state that has more objects than there are now.
func TestPastPlace_hold(t *testing.T) {
	b := respond.NewBudget(pastObjects)
	p := &place{budget: b, user: "user", objects: func() int { return 1 }}
	if err := p.enter(); err != nil || b.Taken() != 1 {
		t.Fatal(b.Taken(), err)
	}
	for objects, want := range map[int]int{300: 300, 100 * pastObjects: mostPastObjects} {
		if err := p.hold(objects); err != nil || b.Taken() < want {
			t.Errorf("%d objects count as %d, %v", objects, b.Taken(), err)
		}
	}
	p.leave()
	if b.Taken() != 0 {
		t.Errorf("%d objects stay taken", b.Taken())
	}
	b.Take("other", pastObjects-5)
	if err := p.hold(300); !apierrors.IsTooManyRequests(err) && p.taken != 5 {
		t.Errorf("%d objects are taken, %v", p.taken, err)
	}
	p.leave()
}

// TestChangesPeriod_subresource requests changes with the right to a subresource. They would show
// the whole object.
func TestChangesPeriod_subresource(t *testing.T) {
	for subresource, refused := range map[string]bool{"": false, "scale": true, "status": true} {
		q := &Request{Name: "x", Query: url.Values{"changes": {"1h"}}}
		q.Subresource = subresource
		if _, _, err := q.changesPeriod(); apierrors.IsBadRequest(err) != refused {
			t.Errorf("%q: %v", subresource, err)
		}
	}
}

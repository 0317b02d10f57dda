// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// agePattern matches a duration as kubectl and the server print it: 5s, 3m20s, 2d4h,
// 1y30d.
var agePattern = regexp.MustCompile(`^(\d+[ydhms])+$`)

var agePart = regexp.MustCompile(`\d+[ydhms]`)

var ageUnits = map[byte]time.Duration{
	'y': 365 * 24 * time.Hour, 'd': 24 * time.Hour, 'h': time.Hour, 'm': time.Minute, 's': time.Second,
}

// age returns a printed duration and the unit to which it is rounded down.
func age(s string) (d, unit time.Duration, ok bool) {
	if !agePattern.MatchString(s) {
		return 0, 0, false
	}
	for _, part := range agePart.FindAllString(s, -1) {
		n, err := strconv.Atoi(part[:len(part)-1])
		if err != nil {
			return 0, 0, false
		}
		unit = ageUnits[part[len(part)-1]]
		d += time.Duration(n) * unit
	}
	return d, unit, true
}

// sameAge reports whether two texts are durations that may have been printed within the
// given time of each other.
func sameAge(a, b string, within time.Duration) bool {
	x, unitX, okX := age(a)
	y, unitY, okY := age(b)
	return okX && okY && (x-y).Abs() <= min(unitX, unitY)+within
}

// agesWithin is the largest time between two requests that are compared.
const agesWithin = 3 * time.Second

// sameWords reports whether two texts are equal word by word, except for their ages.
func sameWords(a, b string, within time.Duration) bool {
	as, bs := strings.Fields(a), strings.Fields(b)
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		x, y := strings.Trim(as[i], "(),"), strings.Trim(bs[i], "(),")
		if as[i] != bs[i] && !sameAge(x, y, within) {
			return false
		}
	}
	return true
}

func TestAges(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"5s", "5s", true}, {"5s", "8s", true}, {"5s", "11s", false}, {"59s", "60s", true}, {"119s", "2m", true},
		{"9m59s", "10m", true}, {"10m", "12m", false}, {"3h5m", "3h6m", true}, {"2d", "2d1h", true},
		{"318d", "1y", false},
		{"5s", "red", false}, {"<unknown>", "5s", false}, {"5", "5s", false},
	} {
		if got := sameAge(c.a, c.b, agesWithin); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
	if !sameWords("7 (3m ago)", "7 (3m2s ago)", agesWithin) || sameWords("7 (3m ago)", "8 (3m ago)", agesWithin) {
		t.Error("restarts are not compared as they should be")
	}
}

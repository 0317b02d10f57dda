// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// settling is how long two sides may take to show the same.
const settling = 40 * time.Second

// reading returns the result of a program on a side, as text.
type reading func(ctx context.Context, s *side) (string, error)

// compare fails the test unless kube-apiserver and the replica that passes requests on show
// the same within the time of settling, and it contains want. It logs how the replica that
// does not pass requests on differs.
func (w *comparedCluster) compare(t *testing.T, name, want string, read reading) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), settling)
		defer cancel()
		err := expect.Until(ctx, func() error { return same(ctx, w.direct, w.passing, want, read) })
		expect.NoError(t, err)
		soon, cancel := context.WithTimeout(t.Context(), settling/8)
		defer cancel()
		if err := expect.Until(soon, func() error { return same(soon, w.direct, w.plain, want, read) }); err != nil {
			t.Logf("without --pass-through: %v", err)
		}
	})
}

// same returns an error unless both sides show the same, with want in it.
func same(ctx context.Context, a, b *side, want string, read reading) error {
	var shown [2]string
	var errs [2]error
	var both sync.WaitGroup
	for i, s := range []*side{a, b} {
		both.Go(func() { shown[i], errs[i] = read(ctx, s) })
	}
	both.Wait()
	if errs[0] != nil {
		return fmt.Errorf("%s: %w", a.name, errs[0])
	}
	if !strings.Contains(shown[0], want) {
		return fmt.Errorf("%s does not show %q: %s", a.name, want, tail(shown[0]))
	}
	if errs[1] != nil {
		return fmt.Errorf("%s: %w", b.name, errs[1])
	}
	return difference(a.name, shown[0], b.name, shown[1])
}

// difference returns an error with the lines that only one of two texts has, up to ten of
// each. The order of lines does not count.
func difference(nameA, a, nameB, b string) error {
	counts := map[string]int{}
	for line := range strings.Lines(a) {
		counts[strings.TrimSpace(line)]++
	}
	for line := range strings.Lines(b) {
		counts[strings.TrimSpace(line)]--
	}
	only := map[string][]string{}
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[line]; n > 0 {
			only[nameA] = append(only[nameA], line)
		} else if n < 0 {
			only[nameB] = append(only[nameB], line)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(only)) {
		lines := only[name]
		errs = append(errs, fmt.Errorf("%d lines only in %s, such as:\n%s", len(lines), name,
			strings.Join(lines[:min(len(lines), 10)], "\n")))
	}
	return errors.Join(errs...)
}

var (
	ages   = regexp.MustCompile(`\b([0-9]+(y|d|h|m|s|ms))+\b`)
	times  = regexp.MustCompile(`\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)`)
	spaces = regexp.MustCompile(`[ \t]+`)
)

// masked returns a text without ages and times, and with single spaces.
func masked(text string) string {
	text = times.ReplaceAllString(text, "TIME")
	text = ages.ReplaceAllString(text, "AGE")
	return spaces.ReplaceAllString(text, " ")
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"testing"
	"time"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Thousands("1"), "1"},
		{Thousands("999"), "999"},
		{Thousands("1000"), "1,000"},
		{Thousands("1234567"), "1,234,567"},
		{Thousands("1234.5"), "1234.5"},
		{Megabytes(2_400_000), "2"},
		{Milliseconds(1500 * time.Microsecond), "1.5"},
		{Significant(0.123456), "0.123"},
		{Significant(123456), "123,456"},
		{Ratio(2*time.Second, 3*time.Second), "1.50"},
		{Ratio(0, time.Microsecond), "1000.00"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestEnvInt(t *testing.T) {
	t.Setenv(EnvPods, "")
	if n, err := EnvInt(EnvPods, 7); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	t.Setenv(EnvPods, "12")
	if n, err := EnvInt(EnvPods, 7); n != 12 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"0", "-1", "many"} {
		t.Setenv(EnvPods, bad)
		if n, err := EnvInt(EnvPods, 7); err == nil {
			t.Errorf("%s is %d", bad, n)
		}
	}
}

func TestLatencies_quantiles(t *testing.T) {
	var l Latencies
	if p50, p99, longest := l.Quantiles(); p50 != 0 || p99 != 0 || longest != 0 {
		t.Error(p50, p99, longest)
	}
	for i := range 100 {
		l = append(l, time.Duration(100-i))
	}
	if p50, p99, longest := l.Quantiles(); p50 != 51 || p99 != 100 || longest != 100 {
		t.Error(p50, p99, longest)
	}
}

func TestPace(t *testing.T) {
	start := time.Unix(100, 0)
	p := Pace(10)
	if got := p.Count(time.Second); got != 10_000 {
		t.Error(got)
	}
	if got := p.Due(start, 9); !got.Equal(start) {
		t.Error(got)
	}
	if got := p.Due(start, 25); !got.Equal(start.Add(2 * PaceInterval)) {
		t.Error(got)
	}
}

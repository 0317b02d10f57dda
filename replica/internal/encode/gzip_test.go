// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"bytes"
	"compress/gzip"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

func TestGzipSum_isTheChecksumOfBoth(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		a, b := make([]byte, rng.IntN(5000)), make([]byte, rng.IntN(300_000))
		for i := range a {
			a[i] = byte(rng.Uint32())
		}
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		want := crc32.ChecksumIEEE(append(append([]byte{}, a...), b...))
		var sum GzipSum
		for _, text := range [][]byte{a, b} {
			s := Deflate(text)
			sum.Add(&s)
		}
		if sum.crc != want {
			t.Fatalf("seed %d: %d and %d bytes: %x, want %x", seed, len(a), len(b), sum.crc, want)
		}
	}
}

func TestSegments_areOneStream(t *testing.T) {
	parts := []string{
		`{"items":[`, strings.Repeat("a pod of the shop ", 1000), ",", strings.Repeat("x", 200_000), "", "]}",
	}
	for _, order := range [][]int{{0, 1, 2, 3, 5}, {3, 1, 1, 4, 0}, {}} {
		var sum GzipSum
		stream, want := []byte(GzipHead), ""
		for _, i := range order {
			s := Deflate([]byte(parts[i]))
			stream = append(stream, s.deflated...)
			sum.Add(&s)
			want += parts[i]
		}
		stream = append(stream, sum.Tail()...)
		if got := gunzip(t, bytes.NewReader(stream)); got != want {
			t.Errorf("order %v: %d bytes, want %d", order, len(got), len(want))
		}
	}
}

func TestMember_isReadBeforeTheNext(t *testing.T) {
	r, w, err := os.Pipe() // a pipe buffers unread bytes
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	events := []string{strings.Repeat("first event ", 50), "second\n", strings.Repeat("third ", 1000)}
	next := make(chan struct{})
	go func() {
		for _, e := range events {
			_, _ = w.Write(Deflate([]byte(e)).Member())
			<-next
		}
		w.Close()
	}()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range events {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(z, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
		next <- struct{}{} // not before: a reader that waits for more would block here
	}
}

func gunzip(t *testing.T, r io.Reader) string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

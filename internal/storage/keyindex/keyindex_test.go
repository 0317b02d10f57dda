// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package keyindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestPieces_random writes random frames of two mirrors, and expects for each key the frames
// that have it, and all that the others mean.
func TestPieces_random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		const start = 1000
		var b Builder
		var frames [2][]Frame
		declared, offset := [2][]int64{}, int64(0)
		for n := range uint64(1 + r.IntN(40)) {
			offset += int64(1 + r.IntN(300))
			m := r.IntN(2)
			if len(declared[m]) == 0 || r.IntN(20) == 0 {
				b.Declare(Mirror{byte(m)}, offset, nil)
				declared[m] = append(declared[m], start+offset)
				continue
			}
			f := Frame{Mirror: Mirror{byte(m)}, Offset: offset, Kind: Batch,
				Head: Head{
					Version: n, Time: time.Unix(int64(n), 0), Era: 3, Flags: byte(r.IntN(2)),
				}, Required: r.IntN(9) == 0}
			f.Ordinary = f.Head.Flags == 0
			for range r.IntN(5) {
				f.Hashes = append(f.Hashes, Hash(fmt.Append(nil, r.IntN(10))))
			}
			b.Add(&f)
			f.Offset += start
			frames[m] = append(frames[m], f)
		}
		block, err := Parse(b.Append(nil, start, 77, 5000), 5000)
		if err != nil || block.Start != start || block.Previous != 77 || b.Size() != 0 {
			t.Fatal(block, err)
		}
		for m := range 2 {
			s, err := block.Section(Mirror{byte(m)})
			if err != nil || (s == nil) != (len(declared[m]) == 0) ||
				s != nil && !slices.Equal(s.Declarations, declared[m]) {
				t.Fatalf("section %d: %+v, %v, declared %v", m, s, err, declared[m])
			}
			for key := range 11 {
				if s == nil {
					continue
				}
				pieces, err := s.Pieces(Hash(fmt.Append(nil, key)))
				if err != nil {
					t.Fatal(err)
				}
				if err := covered(pieces, frames[m], declared[m], Hash(fmt.Append(nil, key))); err != nil {
					t.Fatalf("mirror %d, key %d: %v in\n%+v of\n%+v", m, key, err, pieces, frames[m])
				}
			}
		}
	}
}

// covered returns an error if pieces do not say what they should of some frames.
func covered(pieces []Piece, frames []Frame, declared []int64, hash uint32) error {
	last, open := int64(0), Piece{}
	for _, p := range pieces {
		if p.Offset < last {
			return fmt.Errorf("%+v is not in order", p)
		}
		last = p.Offset
		switch p.Kind {
		case Declaration:
			if !slices.Contains(declared, p.Offset) {
				return fmt.Errorf("%+v was not declared", p)
			}
			continue
		case Run:
			open = p
		}
		i := slices.IndexFunc(frames, func(f Frame) bool { return f.Offset == p.Offset })
		if i < 0 || p.Head != (Head{}) && p.Head != frames[i].Head {
			return fmt.Errorf("%+v is not a frame", p)
		}
	}
	for _, f := range frames {
		read := slices.ContainsFunc(pieces, func(p Piece) bool { return p.Offset == f.Offset && p.Read })
		known := slices.ContainsFunc(pieces, func(p Piece) bool {
			return p.Offset == f.Offset && p.Head == f.Head ||
				p.Kind == Run && p.Offset <= f.Offset && f.Offset <= p.End
		})
		if !known || read != (f.Required || slices.Contains(f.Hashes, hash)) {
			return fmt.Errorf("%+v: read %v, known %v, last run %+v", f, read, known, open)
		}
	}
	return nil
}

// TestPieces_unknownKind returns an error for a section with a frame of a kind that is not listed
// one by one: a declaration, the end of a run, and a kind of a newer program.
func TestPieces_unknownKind(t *testing.T) {
	for _, kind := range []byte{Batch, State, Declaration, RunEnd, 'Q'} {
		for _, needed := range []bool{false, true} {
			var b Builder
			b.Declare(Mirror{}, 5, nil)
			b.Add(&Frame{Offset: 10, Kind: kind, Required: needed})
			block, err := Parse(b.Append(nil, 16, 0, 100), 100)
			if err != nil {
				t.Fatal(err)
			}
			s, err := block.Section(Mirror{})
			if err != nil {
				t.Fatal(err)
			}
			if pieces, err := s.Pieces(1); (err == nil) != (kind == Batch || kind == State) {
				t.Errorf("kind %c, required %v: %+v, %v", kind, needed, pieces, err)
			}
		}
	}
}

// FuzzParse reads anything.
func FuzzParse(f *testing.F) {
	var b Builder
	b.Declare(Mirror{}, 5, nil)
	b.Add(&Frame{Offset: 10, Kind: Batch, Ordinary: true, Hashes: []uint32{1, 2}})
	b.Add(&Frame{Offset: 20, Kind: Batch, Ordinary: true, Hashes: []uint32{1}})
	b.Add(&Frame{Offset: 30, Kind: Batch, Required: true})
	f.Add(b.Append(nil, 16, 0, 100), uint32(1))
	f.Fuzz(func(_ *testing.T, data []byte, hash uint32) {
		if len(data) < TrailerSize {
			return
		}
		block, err := Parse(data, Own(data[len(data)-TrailerSize:]))
		if err != nil {
			return
		}
		s, err := block.Section(Mirror{})
		if err != nil || s == nil {
			return
		}
		_, _ = s.Pieces(hash)
	})
}

var hash uint32

func BenchmarkHash(b *testing.B) {
	key := []byte("team-000/service-00000-jxmpndzq27-dz4hh")
	for b.Loop() {
		hash = Hash(key)
	}
}

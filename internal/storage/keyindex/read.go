// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package keyindex

import (
	"encoding/binary"
	"errors"
	"math"
)

// TrailerSize is the size of the end of a block: its own place.
const TrailerSize = 8

var errMalformed = errors.New("index is malformed")

// Block is the index of a part of a log. It refers to the bytes that it was read from.
type Block struct {
	// Start is where the part begins, and Previous the place of the block before, 0 if there
	// is none.
	Start, Previous int64
	sections        []byte
}

// Own returns the place in the last bytes of a block.
func Own(trailer []byte) int64 { return int64(binary.LittleEndian.Uint64(trailer)) }

// Parse returns the block at a place.
func Parse(block []byte, own int64) (*Block, error) {
	end := len(block) - TrailerSize
	if end < 0 || Own(block[end:]) != own {
		return nil, errMalformed
	}
	r := Fields{B: block[:end]}
	b := &Block{Start: placeOf(&r), Previous: placeOf(&r)}
	b.sections = r.B
	if r.Err != nil || b.Start > own || b.Previous >= own {
		return nil, errMalformed
	}
	return b, nil
}

// Section is what a block has of one mirror.
type Section struct {
	// Declarations are the places of the declarations.
	Declarations []int64
	start        int64
	body         []byte
}

// Section returns the section of a mirror, nil if the part has no frames of it.
func (b *Block) Section(m Mirror) (*Section, error) {
	r := Fields{B: b.sections}
	for len(r.B) > 0 {
		var of Mirror
		copy(of[:], r.Bytes(uint64(len(of))))
		declarations, body := Fields{B: r.Text()}, r.Text()
		if of != m || r.Err != nil {
			continue
		}
		s := &Section{start: b.Start, body: body}
		for place := b.Start; len(declarations.B) > 0; {
			place += placeOf(&declarations)
			s.Declarations = append(s.Declarations, place)
		}
		return s, declarations.Err
	}
	return nil, r.Err
}

// Unseal replaces the encrypted section by the decrypted one.
func (s *Section) Unseal(open func([]byte) ([]byte, error)) (err error) {
	s.body, err = open(s.body)
	return err
}

// Piece is a frame, or an end of a run of ordinary batches.
type Piece struct {
	Kind   byte
	Offset int64
	// Head is that of the frame. A declaration, and a batch of a run, have none.
	Head Head
	// End and Last are the place and the head of the last batch of a Run.
	End  int64
	Last Head
	// Read means that the frame has to be read.
	Read bool
}

// Pieces returns, in the order of the log, the frames that may have a change of a key with the
// hash, and what is known of all other frames. A batch that is read from a run is returned between
// the Run and its RunEnd. It may have the same offset as either.
func (s *Section) Pieces(hash uint32) ([]Piece, error) {
	r := Fields{B: s.body}
	frames := Fields{B: r.Text()}
	matches := s.matches(&frames, r.Text(), hash)
	declarations := s.Declarations
	var all []Piece
	before := func(end int64) { // adds the declarations and the batches of a run up to a place
		for ; len(declarations) > 0 && declarations[0] <= end; declarations = declarations[1:] {
			all = append(all, Piece{Kind: Declaration, Offset: declarations[0], Read: true})
		}
		for ; len(matches) > 0 && matches[0] <= end; matches = matches[1:] {
			all = append(all, Piece{Kind: Batch, Offset: matches[0], Read: true})
		}
	}
	for place := s.start; len(r.B) > 0; {
		kind := r.Byte()
		place += placeOf(&r)
		p := Piece{Kind: kind &^ required, Offset: place, Read: kind&required != 0}
		if p.Kind == Run {
			p.End = place + placeOf(&r)
		}
		p.Head = r.Head()
		before(place - 1)
		switch {
		case p.Kind == Run && p.End > place:
			p.Last = r.Head()
			all = append(all, p)
			before(p.End)
			all = append(all, Piece{Kind: RunEnd, Offset: p.End, Head: p.Last})
			continue
		case p.Kind == Run:
			p.Kind = Batch
		case p.Kind != Batch && p.Kind != State:
			return nil, errMalformed
		}
		if len(matches) > 0 && matches[0] == place {
			p.Read, matches = true, matches[1:]
		}
		all = append(all, p)
	}
	if r.Err != nil || frames.Err != nil || len(matches) > 0 {
		return nil, errMalformed
	}
	before(math.MaxInt64)
	return all, nil
}

// matches returns the places of the frames that have a hash.
func (s *Section) matches(frames *Fields, hashes []byte, hash uint32) (places []int64) {
	place, count := s.start, 0 // of the frames up to here
	for i := 0; i+4 <= len(hashes); i += 4 {
		if binary.LittleEndian.Uint32(hashes[i:]) != hash || i/4 < count {
			continue // it is another key, or the frame is known
		}
		for count <= i/4 && frames.Err == nil {
			place += placeOf(frames)
			count += int(placeOf(frames))
		}
		places = append(places, place)
	}
	return places
}

// placeOf reads a number that is smaller than any file.
func placeOf(r *Fields) int64 {
	n := r.Number()
	if n > 1<<40 {
		r.B, r.Err = nil, errMalformed
		return 0
	}
	return int64(n)
}

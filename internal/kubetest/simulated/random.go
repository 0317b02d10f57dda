// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

// random is a sequence of numbers that is determined by its first value (splitmix64).
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// between returns a number from lo to hi, both included.
func (r *random) between(lo, hi uint64) uint64 { return lo + r.next()>>32*(hi-lo+1)>>32 }

// sequence returns the random numbers of an object: different arguments result in
// different sequences.
func sequence(numbers ...uint64) random {
	var r random
	for _, n := range numbers {
		r = random(r.next() ^ n)
	}
	return r
}

// letters are the letters that Kubernetes uses in generated names.
const letters = "bcdfghjklmnpqrstvwxz2456789"

func (r *random) letters(dst []byte) {
	for i := range dst {
		dst[i] = letters[r.between(0, uint64(len(letters)-1))]
	}
}

var hexPairs = func() (pairs [256][2]byte) {
	const digits = "0123456789abcdef"
	for i := range pairs {
		pairs[i] = [2]byte{digits[i>>4], digits[i&15]}
	}
	return pairs
}()

// hex fills dst, a multiple of 16 bytes, with hexadecimal digits.
func (r *random) hex(dst []byte) {
	for ; len(dst) >= 16; dst = dst[16:] {
		n := r.next()
		for i := 0; i < 16; i += 2 {
			pair := &hexPairs[byte(n)]
			dst[i], dst[i+1] = pair[0], pair[1]
			n >>= 8
		}
	}
}

// uid fills dst with a uid in the form of [kubetest.Workload].
func (r *random) uid(dst []byte) {
	var h [32]byte
	r.hex(h[:])
	h[12], h[16] = '4', 'a'
	copy(dst[0:], h[:8])
	copy(dst[9:], h[8:12])
	copy(dst[14:], h[12:16])
	copy(dst[19:], h[16:20])
	copy(dst[24:], h[20:])
	dst[8], dst[13], dst[18], dst[23] = '-', '-', '-', '-'
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"encoding/binary"
	"time"
)

// values are the bytes that differ between objects of one shape, each at its span. They
// fill the places of a template.
type values [valuesSize]byte

// span is the position of a value among the values.
type span struct{ at, size int }

func (s span) then(size int) span { return span{s.at + s.size, size} }

func (s span) of(v *values) []byte { return v[s.at : s.at+s.size] }

// The values that pods share with the others of their owner.
var (
	namespaceSpan = span{0, len("team-000")}
	appSpan       = namespaceSpan.then(len("service-00000"))
	hashSpan      = appSpan.then(10)
	ownerUIDSpan  = hashSpan.then(36)
	checksumSpan  = ownerUIDSpan.then(64)
	costUnitSpan  = checksumSpan.then(len("0000"))
	volumeSpan    = costUnitSpan.then(5)
	releaseSpan   = volumeSpan.then(len("1.10.10"))
	imageSpan     = releaseSpan.then(64)
	sidecarSpan   = imageSpan.then(64)
)

// The values of a single pod. A namespace has a name, a uid and a version of these.
var (
	suffixSpan   = sidecarSpan.then(5)
	uidSpan      = suffixSpan.then(36)
	podIPSpan    = uidSpan.then(len("10.64.100.100"))
	hostIPSpan   = podIPSpan.then(len("192.168.100.100"))
	nodeSpan     = hostIPSpan.then(len("node-100"))
	mainIDSpan   = nodeSpan.then(64)
	metricIDSpan = mainIDSpan.then(64)
	versionSpan  = metricIDSpan.then(len("1000000000"))
	madeSpan     = versionSpan.then(len("2006-01-02T15:04:05Z"))
	laterSpan    = madeSpan.then(len("2006-01-02T15:04:05Z"))
	touchedSpan  = laterSpan.then(len("2006-01-02T15:04:05Z"))
)

const valuesSize = 560

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

// decimal writes n with as many digits as fit into dst.
func decimal(dst []byte, n uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
}

// moment writes a time, in seconds, in an encoding: a varint of protobuf, always of five
// bytes in our century, or text.
func moment(dst []byte, seconds int64, enc encoding) {
	if enc == protobufEncoding {
		binary.PutUvarint(dst, uint64(seconds))
		return
	}
	time.Unix(seconds, 0).UTC().AppendFormat(dst[:0], time.RFC3339)
}

// fillOwner sets the values that the pods of an app share in a cluster.
func (v *values) fillOwner(cluster uint64, p *podIdentity) {
	r := sequence(cluster, 1, uint64(p.app))
	copy(namespaceSpan.of(v), p.key)
	copy(appSpan.of(v), p.name())
	copy(hashSpan.of(v), p.name()[len("service-00000-"):])
	r.uid(ownerUIDSpan.of(v))
	r.hex(checksumSpan.of(v))
	decimal(costUnitSpan.of(v), r.between(0, 9999))
	r.letters(volumeSpan.of(v))
	release := releaseSpan.of(v)
	decimal(release[0:1], r.between(1, 5))
	decimal(release[2:4], r.between(10, 39))
	decimal(release[5:7], r.between(10, 19))
	release[1], release[4] = '.', '.'
	r.hex(imageSpan.of(v))
	r.hex(sidecarSpan.of(v))
}

// fillPod sets the values of a single pod. A pod that was created again has another uid
// and other ids, like a real one.
func (v *values) fillPod(cluster uint64, p *podIdentity, s state, touches uint32, enc encoding) {
	r := sequence(cluster, 2, uint64(p.origin), uint64(s.born))
	copy(suffixSpan.of(v), p.key[len(p.key)-suffixSpan.size:])
	r.uid(uidSpan.of(v))
	ip := podIPSpan.of(v)
	copy(ip, "10.")
	decimal(ip[3:5], r.between(64, 99))
	decimal(ip[6:9], r.between(100, 255))
	decimal(ip[10:13], r.between(100, 254))
	ip[5], ip[9] = '.', '.'
	host := hostIPSpan.of(v)
	copy(host, "192.168.")
	decimal(host[8:11], r.between(100, 255))
	decimal(host[12:15], r.between(100, 254))
	host[11] = '.'
	node := nodeSpan.of(v)
	copy(node, "node-")
	decimal(node[5:8], r.between(100, 499))
	r.hex(mainIDSpan.of(v))
	r.hex(metricIDSpan.of(v))
	made := p.made + int64(s.born)
	moment(madeSpan.of(v), made, enc)
	moment(laterSpan.of(v), made+4, enc)
	moment(touchedSpan.of(v), made+4+int64(touches), enc)
	decimal(versionSpan.of(v), firstVersion+uint64(s.version))
}

// fillNamespace sets the values that differ between namespaces.
func (v *values) fillNamespace(cluster uint64, i int, name string, s state) {
	r := sequence(cluster, 3, uint64(i))
	copy(namespaceSpan.of(v), name)
	r.uid(uidSpan.of(v))
	decimal(versionSpan.of(v), firstVersion+uint64(s.version))
}

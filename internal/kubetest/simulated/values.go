// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

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

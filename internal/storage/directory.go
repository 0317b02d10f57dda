// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Options are those of package disk, with the same defaults.
type Options struct {
	Buffer      int64
	Window      time.Duration
	WindowBytes int64
	Keys        format.Keys
	Logger      *slog.Logger
}

// limits are sizes and times that only tests change.
type limits struct {
	// chunk is the size of a write, and of a chunk of a snapshot. A mirror with less than
	// a chunk has its complete state in the log.
	chunk int64
	// segment is the size of a segment of a log. An index frame is written after every "indexed"
	// bytes of frames, or when it has about "index" bytes.
	segment, indexed, index int64
	// minLog is the size of a mirror's batches below which it gets no new snapshot, and
	// replay the size of a log that may have to be read to restore a mirror.
	minLog, replay int64
	// window is how far back the records reach that a mirror is loaded with.
	window time.Duration
	// delay is how long a batch waits for others, and syncEvery how often logs are synced.
	delay, syncEvery time.Duration
	// maintainEvery is how often segments are removed, and hold how long readers of the past
	// can delay that.
	maintainEvery, hold time.Duration
	// minRetry and maxRetry are the first and the longest time between attempts to write
	// after an error.
	minRetry, maxRetry time.Duration
}

var defaultLimits = limits{
	chunk: 256 << 10, segment: 16 << 20, indexed: 2 << 20, index: 32 << 10,
	minLog: 1 << 20, replay: 256 << 20, window: 5 * time.Minute,
	delay: 10 * time.Millisecond, syncEvery: time.Second, maintainEvery: 10 * time.Second, hold: 10 * time.Second,
	minRetry: time.Second, maxRetry: time.Minute,
}

// Directory is the files of all clusters. All methods are safe for concurrent use.
type Directory struct {
	path         string
	opts         Options
	limits       limits
	files        format.Files
	dictionaries *format.Dictionaries
	lock         *os.File
	// syncNow wakes the goroutine that syncs.
	syncNow chan struct{}
	running atomic.Bool
	jobs    chan *stateJob

	written, syncs atomic.Int64

	clock  clock
	opened time.Time
	// Only the goroutine that writes uses the next fields. settling means that the clock may
	// be wrong because the process has just begun. departed are the folders of clusters that
	// have left, which were last searched for at searched.
	settling bool
	searched time.Time
	departed []*departed
	// items and payload are buffers, and spare are those that the logs have returned.
	items, payload []byte
	hashes         []uint32
	spare          [][]byte

	// folders is held while a cluster's directory is created. It guards foldersSynced, which means
	// that this process has synced the directories above those of the clusters. A process that was
	// killed may have created a cluster's directory without syncing the directories above it.
	folders       sync.Mutex
	foldersSynced bool

	// ledger has the queue and the progress of all mirrors.
	ledger *ledger
}

// queuedBatch is a batch that waits to be written.
type queuedBatch struct {
	mirror *Mirror
	epoch  uint64
	size   int64
	keyindex.Head
	restored *Restored // the last restore of the server up to the batch
	changes  []store.Change[*wire.Object]
	managers []string
	packed   []*pack.Body // [Batch.Packed]
}

// stateJob is the complete state of a mirror that is to be written.
type stateJob struct {
	mirror *Mirror
	epoch  uint64
	state  *store.Snapshot[*wire.Object]
	time   time.Time // when the state arrived
	// restored is the last restore of the server up to the state.
	restored *Restored
	// large means that the state gets a file of its own.
	large bool
	// after is the place in the log after the batches that the state contains. It is zero
	// until the place is known. bytes is the size of the state in files.
	after format.Position
	bytes int64
}

// Cluster is the files of one cluster: a log, and the snapshots of its large mirrors.
type Cluster struct {
	directory    *Directory
	name, folder string
	// past reads the files.
	past *reader.Folder
	// once reads the index: what the files had when the cluster was opened. The index and
	// off, which is why nothing is written, do not change afterwards, and neither does problem.
	once  sync.Once
	index *reader.Index
	off   error
	// problem is why the files could not be read, nil if they could.
	problem error
	// removed is set when the files are removed.
	removed atomic.Bool

	// entry belongs to the ledger.
	entry clusterEntry

	// syncMu is held while the file is synced.
	syncMu sync.Mutex
	// fileMu guards the fields below: the current segment, nil if there is none. It is held
	// only to exchange it.
	fileMu sync.Mutex
	file   *os.File
	unsync bool  // the file has unsynced bytes
	failed error // of the last sync

	log clusterLog // used only by the goroutine that writes
}

// MirrorOptions configures a [Mirror]. The zero value is the default.
type MirrorOptions struct {
	// Kind is the kind of the loaded objects. Its group, version and name must be those of
	// the identity. Default: a kind without a Go type.
	Kind *wire.Kind
	// Packer packs objects that are not packed yet. Default: they are written as they are.
	Packer *objectpack.Packer
}

// Batch is a number of changes that a mirror has applied at once.
type Batch struct {
	// State is the state after the changes, with its version and its era.
	State *store.Snapshot[*wire.Object]
	// Changes led to State from the state of the batch before. A batch without changes
	// stores a new version.
	Changes []store.Change[*wire.Object]
	// Packed are the packed bytes of the new objects, in the same order, for objects that do not have
	// them yet. It may be shorter, and have nil.
	Packed []*pack.Body
	// Managers are the field managers of the changes, in the same order. It may be
	// shorter.
	Managers []string
	// Open means that a relist is being applied and State is between two states of the
	// server. The next batch that is not open ends the relist.
	Open bool
	// Vague means that State may have objects that the server does not have: a relist could not
	// read all keys. Such a state is not stored, and neither is what follows, until a batch that
	// is not vague.
	Vague bool
	// Listed means that a relist found the changes. Open batches imply it.
	Listed bool
	// Time is when the changes arrived. Default: now.
	Time time.Time
}

// Mirror stores one resource of a cluster. All methods are safe for concurrent use, but
// batches must be appended in their order.
type Mirror struct {
	cluster *Cluster
	id      Identity
	digest  format.Digest
	opts    MirrorOptions

	// entry belongs to the ledger.
	entry mirrorEntry

	// Only the goroutine that writes uses the fields below.

	encoder *format.Encoder
	// segment and number are the newest segment that declares the mirror, 0 if there is
	// none, and its number there. declared is the epoch of the declaration.
	segment  uint64
	number   uint32
	declared uint64
	// oldest is the first epoch whose batches can still be written. It is set with the lock of the
	// ledger, because the goroutine that writes snapshots reads it.
	oldest       uint64
	version, era uint64
	restored     *Restored
	relisting    bool
	// resumed means that the batches continue the loaded state.
	resumed bool
	// large means that the state needed a file of its own when it was last checked.
	large bool
}

// departed is the folder of a cluster that is not open: nothing writes to it.
type departed struct {
	directory *Directory
	folder    string
	bytes     int64
	// time is when the newest file was written.
	time time.Time
}

// MirrorStatus is the progress of one mirror.
type MirrorStatus struct {
	// Version is the version of the newest batch that was written, which may not be
	// synced yet.
	Version uint64
	// Behind means that the files are older, because a complete state must be written
	// first.
	Behind bool
	// Dropped counts how often batches were dropped.
	Dropped uint64
	// Err is the last error, nil if there was none since the last complete state.
	Err error
}

// clusterLog writes the log of a cluster. Only the goroutine that writes uses it.
type clusterLog struct {
	// segments are the segments in the folder.
	segments []segmentInfo
	// next is the number of the next segment, previous the length of the one before it.
	next     uint64
	previous int64
	// sums are the dictionaries that the newest segment names.
	sums map[string]bool
	// newest is the newest time that was written.
	newest time.Time
	// inherited means that the last segment was written by another process, which may not
	// have synced it.
	inherited bool

	// current has the newest segment while it is written.
	current *segmentInfo
	mirrors uint32
	seal    *format.Seal
	wrapped []byte
	// buffer has the frames of a round that are not written yet, nil between rounds.
	buffer []byte
	// index has what the next index frame will have, some 32 KB at most. It covers the frames
	// from covered on, and indexed is where the last index frame is, 0 if there is none.
	index            keyindex.Builder
	covered, indexed int64

	retry time.Time
	wait  time.Duration
}

type segmentInfo struct {
	number uint64
	size   int64
	began  time.Time
	// base is the oldest segment that was needed to restore the mirrors when the segment
	// began, 0 if it is not known.
	base uint64
}

// maxSpare limits the buffers that wait for a log.
const maxSpare = 4

// lend gives a log a buffer, unless it has one. Logs have none between rounds: there may be
// thousands of them.
func (d *Directory) lend(l *clusterLog) {
	if n := len(d.spare); n > 0 && l.buffer == nil {
		l.buffer, d.spare = d.spare[n-1], d.spare[:n-1]
	}
}

// takeBack takes the buffer of a log back.
func (d *Directory) takeBack(l *clusterLog) {
	if l.buffer != nil && len(d.spare) < maxSpare {
		d.spare = append(d.spare, l.buffer[:0])
	}
	l.buffer = nil
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

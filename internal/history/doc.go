// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package history has one resource of one cluster by the versions of its API server: the states
// that the server had, each at its version, and the changes between them. An HTTP client of the
// Kubernetes API resumes by such versions. A [Feed] decides which of them it may use, and reads
// states of the past from memory ([Feed.At]) and from files ([Feed.AtTime], [Feed.Changes]).
//
// # Versions
//
// A feed keeps the newest state and a log of changes. Each change has a revision, which is its
// position in the log and grows by one, and the version of the server. A restore of the server
// takes a revision too, and that one has no change. A client that has seen
// everything up to a version continues after some revision: [Feed.Since] returns it. The answer
// is exact, or [ErrExpired]: the client then lists again. It is [ErrFuture] if the copy has not
// reached the version yet, and [ErrNotReady] until the first list is complete or the
// stored state is loaded. Gaps and versions that repeat make it difficult. The example follows one feed through both.
//
// The first list has no objects and is at version 100. Then a watch delivers:
//
//	revision 1   version 103   Added a
//	revision 2   version 105   Added b
//	             version 110   a bookmark: nothing has changed up to 110
//	revision 3   version 112   Added c
//
// A client that has seen version 103 continues after revision 1, and so does one that has seen
// 104: nothing happened in between. A client that has seen 99 gets ErrExpired. The state at
// version 110 is the newest state without c: [Feed.At] undoes the changes since.
//
// # A gap
//
// The watch breaks, the server does not have the changes since 112 any more, and the resource is
// listed again at version 130. The list has a, c and a new object d, whose version is 125, and
// it lacks b. While the list arrives, readers keep the state at 112. At its end the feed
// publishes the differences at once:
//
//	revision 4   version 112   Deleted b
//	revision 5   version 125   Added d
//
// We cannot know when b was deleted. Its deletion has the version before the list and comes
// first: a client that stops between revisions 4 and 5 holds version 112, which promises nothing
// that the client has not seen. The feed records a gap after 112 and before 130:
//
//   - After 113 to 129 a client gets ErrExpired, and is told that 130 would be accepted. An
//     object may have been created and deleted there.
//   - A client that has seen 112 may have seen the state before the list, or some of the
//     differences. It receives everything since the feed first had version 112 again: c, which
//     has revision 3, and revisions 4 and 5. Receiving a change twice is harmless.
//   - The state at version 112 is the one before the list, at revision 3, the last with that
//     version before the differences.
//
// The program is stopped and started again. [Writer.Load] publishes the changes from the files,
// so that clients of the former process can resume. If the server still has the changes since
// 130, the watch goes on there. If it does not, the resource is listed at, say, version 180, and
// the time in which the program was not running is a gap like any other: after 130, before 180.
//
// # Versions that repeat
//
// The server's etcd is restored from a backup that was made at version 120, and goes on from
// there. A list returns version 121. What comes after 121 is another history, although the
// numbers repeat. The feed begins a new era: it cuts the log, so that watches end, and remembers
// the highest version before the restore, 180, and the versions that it had before, as far as
// they are in its log: 103, 105, 110, 112, 125, 130 and 180. The restore takes revision 6. Then the watch delivers:
//
//	revision 7   version 123   Added e
//	revision 8   version 125   Added f
//
// A client brings a version and does not say which history it has read:
//
//   - 123 is accepted: the feed had it after the restore and not before.
//   - 125 is refused: the feed had it before the restore and after it.
//   - 122 is refused: the feed never had it, so another copy, or the server, issued it before
//     the restore or after it.
//   - 150 is refused, although it is in the future: before the restore it was a version too. As
//     long as the newest version is not above 180, no future version is waited for.
//   - 181 and later versions are as usual once the server has passed 180.
//
// Five minutes after the restore, no client can continue with what it read before. The versions
// that the feed had before are forgotten, and 125 is accepted as well. Versions that the feed
// never had stay refused.
//
// A cluster that replaces another one under the same name begins a new era too: see
// [Writer.Succeed].
//
// # What blocks
//
// [Feed.Wait] and [Feed.Resume] wait for a version. Two reads of files run at once, and others
// wait. A read ends before its results are returned, except [DiskReader.Changes], whose caller
// keeps its place while it iterates.
//
// # Bounds and ownership
//
// The mu of a feed guards its coverage and its era. It is held while a batch is published, and
// never while a reader waits. A feed keeps changes within its window and for five minutes, and at
// most 64 gaps. The parts of a relist are kept until the relist ends.
package history

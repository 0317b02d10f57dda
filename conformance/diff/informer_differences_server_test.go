// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/reflector"
)

// These tests concern the reactions of the two sides to the server.

func TestDifference_resumedAfterAnError(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.holdAt(connecting)
		d.model.end(endInternal)
		d.write("a/1", nil)
		d.write("a/1", nil)
		d.remove("a/1")
		d.settle()
		d.release()
		d.settle()
		d.want("update a/1@101 to a/1@102; update a/1@102 to a/1@103; delete a/1@104", "miss a/1@101")
		want(t, "states read", fmt.Sprint(d.model.ours.lists, d.model.theirs.lists), "1 2")
	})
}

func TestDifference_shortWatch(t *testing.T) {
	apart(t, func(d *duo) {
		d.start()
		time.Sleep(time.Minute)
		d.model.end(clean)
		synctest.Wait()
		d.model.end(clean)
		d.settle()
		want(t, "states read", fmt.Sprint(d.model.ours.lists, d.model.theirs.lists), "1 2")
	})
}

func TestDifference_olderList(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming = false
		d.write("a/1", nil)
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@102", "first a/1@102")
		d.model.ours.stale, d.model.theirs.stale = 101, 101 // a server behind a load balancer that has not caught up
		d.relist(nil)
		d.want("", "update a/1@102 to a/1@101; update a/1@101 to a/1@102")
		isTrue(t, d.ours.Status().Reflector.Restores == 0, "the server's data has not gone back")
	})
}

func TestDifference_restoredServer(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming = false
		d.write("a/1", nil)
		d.write("a/2", nil)
		d.start()
		d.want("first a/1@101; first a/2@102", "first a/1@101; first a/2@102")
		time.Sleep(time.Minute)
		d.goBack(101)
		d.model.end(clean)
		d.settle()
		time.Sleep(time.Hour)
		d.want("miss a/2@102", "")
		d.wantHas("a/1@101", "a/1@101 a/2@102")
		isTrue(t, d.ours.Status().Reflector.Restores == 1, "ours says so")
	})
}

func TestDifference_streamingIsRemembered(t *testing.T) {
	apart(t, func(d *duo) {
		d.streaming = false
		d.start()
		d.relist(nil)
		d.relist(nil)
		want(t, "times a stream was asked for", fmt.Sprint(d.model.ours.refusals, d.model.theirs.refusals), "1 3")
	})
}

// TestDifference_streamingIgnored has a server that does not support initial events and
// responds as if they had not been requested.
func TestDifference_streamingIgnored(t *testing.T) {
	apart(t, func(d *duo) {
		d.ignoring = true
		d.write("a/1", nil)
		d.make()
		d.run()
		for range 10 {
			time.Sleep(time.Minute)
			d.bookmark()
		}
		synctest.Wait()
		isTrue(t, !d.theirs.HasSynced(), "client-go waits for ever")
		isTrue(t, d.ours.HasSynced(), "ours lists")
		d.wantHas("a/1@101", "")
	})
}

func TestDifference_vanishedResource(t *testing.T) {
	apart(t, func(d *duo) {
		d.write("a/1", nil)
		d.start()
		d.want("first a/1@101", "first a/1@101")
		d.vanish(true)
		d.model.end(clean)
		time.Sleep(time.Hour)
		synctest.Wait()
		d.want("miss a/1@101", "")
		isTrue(t, d.ours.Status().Reflector.State == reflector.Parked, "ours waits for it to come back")
		d.wantHas("", "a/1@101")
		d.vanish(false)
		d.settle()
		d.want("add a/1@101", "update a/1@101 to a/1@101")
	})
}

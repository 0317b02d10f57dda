// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// The faults of TestSources_chaos. Each ends with sources that can be read.

// stopHub reloads the sources while the hub is down, for longer than other sources wait for it.
func (w *sourcesWorld) stopHub() {
	w.did["hub down at a reload"]++
	w.hub.stop(true)
	w.reload(nil)
	time.Sleep(5500 * time.Millisecond) // the other sources wait for 5 s
	w.present("while the hub is down")
	w.hub.stop(false)
}

// refuseHub reads the hub with wrong credentials.
func (w *sourcesWorld) refuseHub() {
	w.did["credentials of the hub"]++
	w.reload(map[string]any{"sources.hub.context": refusedToken})
	w.pause(2 * time.Second)
	w.present("with wrong credentials of the hub")
	w.c.change(map[string]any{"sources.hub.context": "hub"})
}

// breakFile writes a kubeconfig of a cluster in two parts.
func (w *sourcesWorld) breakFile() {
	w.did["half a kubeconfig"]++
	name := some(w, w.names(""))
	w.write(name, "", w.rng.Float64())
	w.pause(3 * time.Second)
	w.present("with half of a kubeconfig")
	w.write(name, "", 1)
}

// refuseCluster gives a cluster wrong credentials for a while.
func (w *sourcesWorld) refuseCluster() {
	w.did["credentials of a cluster"]++
	name := some(w, w.names(""))
	w.write(name, refusedToken, 1)
	w.pause(3 * time.Second)
	w.present("with wrong credentials of a cluster")
	w.write(name, "", 1)
}

// rename gives a cluster another name in its source.
func (w *sourcesWorld) rename() {
	w.did["renamed"]++
	old := some(w, w.names(""))
	p := w.want[old]
	name := w.name(p.source)
	w.witness.leaves(name)
	w.remove(old)
	w.want[name] = p
	w.write(name, "", 1)
}

// replace makes a name lead to another cluster.
func (w *sourcesWorld) replace() {
	w.did["replaced"]++
	name := some(w, w.names(""))
	w.witness.leaves(name)
	w.want[name] = &place{w.want[name].source, w.spare()}
	w.write(name, "", 1)
}

// change adds a cluster to the hub, or removes one.
func (w *sourcesWorld) change() {
	w.did["added or removed"]++
	if names := w.names("hub"); len(names) > 2 {
		w.remove(some(w, names))
		return
	}
	name := w.name("hub")
	w.want[name] = &place{"hub", w.spare()}
	w.write(name, "", 1)
}

// breakConfiguration writes the configuration in two parts.
func (w *sourcesWorld) breakConfiguration() {
	w.did["half a configuration"]++
	text, err := os.ReadFile(w.c.path)
	expect.NoError(w.t, err)
	expect.NoError(w.t, os.WriteFile(w.c.path, text[:w.rng.IntN(len(text))], 0o600))
	w.pause(time.Second)
	w.present("with half of a configuration")
	w.reload(nil)
}

// breakKubeconfig reloads the sources while the kubeconfig is being written: the new configuration
// is rejected, and takes effect when the kubeconfig can be read.
func (w *sourcesWorld) breakKubeconfig() {
	w.did["reload with half a kubeconfig"]++
	name := some(w, w.names("contexts"))
	w.write(name, "", w.rng.Float64())
	w.reload(nil)
	w.pause(time.Second)
	w.present("with half of a kubeconfig at a reload")
	w.write(name, "", 1)
}

// clash has a cluster of the hub's name in the folder for a while: the folder has precedence.
func (w *sourcesWorld) clash() {
	w.did["name in two sources"]++
	name := some(w, w.names("hub"))
	w.witness.leaves(name)
	hub := w.want[name]
	w.want[name] = &place{"folder", w.spare()}
	w.write(name, "", 1)
	w.pause(3 * time.Second)
	w.remove(name)
	w.want[name] = hub
}

// restart starts the server while the hub is down: it is not ready, and does not deny clusters.
func (w *sourcesWorld) restart() {
	w.did["hub down at the start"]++
	w.witness.end()
	if wrong := w.witness.wrong; len(wrong) > 0 { // the next watch begins without them
		w.t.Errorf("before a restart: %d wrong events, the first is %s", len(wrong), wrong[0])
	}
	expect.NoError(w.t, w.c.stopped())
	w.hub.stop(true)
	w.c = launch(w.t, w.c.values)
	path := "/clusters/" + w.names("hub")[0] + "/api/v1/pods"
	expect.Soon(w.t, "a response", func() bool {
		code, _ := w.c.get(path, w.c.owner())
		return code == http.StatusServiceUnavailable
	})
	for range 12 {
		time.Sleep(500 * time.Millisecond) // 6 s, which is longer than the server waits for the hub
		if code, body := w.c.get(path, w.c.owner()); code != http.StatusServiceUnavailable {
			w.t.Errorf("a cluster of a hub that is down: %d %s", code, body)
		}
	}
	if code, body := w.c.get("/readyz?verbose", w.c.owner()); code != http.StatusInternalServerError ||
		!strings.Contains(body, "no report of Cluster API on hub") {
		w.t.Errorf("ready while a hub is down: %d %s", code, body)
	}
	w.hub.stop(false)
	expect.Soon(w.t, "the server is ready", func() bool {
		code, _ := w.c.get("/readyz", w.c.owner())
		return code == http.StatusOK
	})
	w.witness = watchPods(w.c)
}

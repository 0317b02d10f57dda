// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
)

var sourceRounds = flag.Int("sources.rounds", shortRounds, "how many rounds of faults the sources go through")

// shortRounds is the number of rounds without the flag. Only the first of them has a hub that is down
// for longer than other sources wait for it, which takes long.
const shortRounds = 5

// sourcesWorld is a server with a kubeconfig, a folder and a hub, and what they should have.
type sourcesWorld struct {
	t       *testing.T
	rng     *rand.Rand
	c       *configured
	witness *podWitness
	hub     *secretHub
	origins []*origin
	// folder, other and contexts are the paths of the sources. Other is a second folder.
	folder, other, contexts string
	// want are the clusters that the sources have, by name.
	want map[string]*place
	// serial makes names new.
	serial int
	did    map[string]int
}

// place is where a cluster comes from, and where it leads.
type place struct {
	source string // folder, hub or contexts
	at     *origin
}

// TestSources_chaos changes configuration and sources at random: hubs are down at the start and at
// reloads, files are written in parts, credentials are wrong and right again, clusters are renamed
// and replaced. A watch of the fleet never receives DELETED for an object that exists, no cluster
// that exists is denied, and after each round the copy is what the clusters have.
func TestSources_chaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATERSHED_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("WATERSHED_SEED=%d", seed)
	w := newSourcesWorld(t, seed)
	began := time.Now()
	for round := range *sourceRounds {
		w.witness.leaves()
		actions := []func(){
			w.refuseHub, w.breakFile, w.refuseCluster, w.rename, w.replace, w.change, w.breakConfiguration,
			w.breakKubeconfig, w.clash,
		}
		switch {
		case round == 0:
			w.stopHub()
		case *sourceRounds > shortRounds:
			actions = append(actions, w.stopHub, w.restart)
			some(w, actions)()
		}
		some(w, actions)()
		w.touch()
		w.converge(round)
		if t.Failed() {
			t.Fatalf("round %d; log:\n%s", round, w.c.log)
		}
	}
	t.Logf("%d rounds in %s: %v; %d events, %d of them DELETED", *sourceRounds,
		time.Since(began).Round(time.Millisecond), w.did, w.witness.events, w.witness.deleted)
}

func newSourcesWorld(t *testing.T, seed uint64) *sourcesWorld {
	t.Helper()
	w := &sourcesWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), hub: startSecretHub(t), origins: startOrigins(t, 9, 10),
		folder: t.TempDir(), other: t.TempDir(),
		contexts: filepath.Join(t.TempDir(), "config"), want: map[string]*place{}, did: map[string]int{},
	}
	for i, source := range []string{"folder", "folder", "hub", "hub", "hub", "contexts"} {
		w.want[w.name(source)] = &place{source, w.origins[i]}
	}
	for name := range w.want {
		w.write(name, "", 1)
	}
	w.c = configure(t, map[string]any{
		"mirror.resources": []string{"pods"}, "sources.directories": []string{w.folder},
		"sources.kubeconfig": w.contexts,
		"sources.clusterAPI": true, "sources.hub.kubeconfig": w.hub.kubeconfig, "sources.hub.context": "hub",
	})
	w.witness = watchPods(w.c)
	return w
}

// name returns a new name of a cluster in a source.
func (w *sourcesWorld) name(source string) string {
	w.serial++
	if source == "hub" {
		return fmt.Sprintf("default.h%d", w.serial)
	}
	return fmt.Sprintf("%s%d", source[:1], w.serial)
}

// kubeconfig returns a kubeconfig with a context for each name.
func (w *sourcesWorld) kubeconfig(token string, names ...string) []byte {
	k := clientcmdapi.NewConfig()
	for _, name := range names {
		o := w.want[name].at
		k.Clusters[name] = &clientcmdapi.Cluster{
			Server:                   o.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw}),
		}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	text, err := clientcmd.Write(*k)
	expect.NoError(w.t, err)
	return text
}

// write writes the kubeconfig of a cluster to its source, or only a part of it. A token "" is one
// that the cluster accepts.
func (w *sourcesWorld) write(name, token string, part float64) {
	if token == "" {
		token = "replica"
	}
	source := w.want[name].source
	names := []string{name}
	if source == "contexts" {
		names = w.names(source)
	}
	text := w.kubeconfig(token, names...)
	if end := strings.Index(string(text), "\ncontexts:"); part < 1 {
		// Half of the list of contexts would be a list without the others.
		text = text[:int(part*float64(end))]
	}
	switch source {
	case "folder":
		expect.NoError(w.t, os.WriteFile(filepath.Join(w.folder, name+".yaml"), text, 0o600))
	case "contexts":
		expect.NoError(w.t, os.WriteFile(w.contexts, text, 0o600))
	case "hub":
		w.hub.set(strings.TrimPrefix(name, "default."), text)
	}
}

// remove removes a cluster from its source, except from the kubeconfig, whose other contexts are
// written again.
func (w *sourcesWorld) remove(name string) {
	source := w.want[name].source
	w.witness.leaves(name)
	delete(w.want, name)
	switch source {
	case "folder":
		expect.NoError(w.t, os.Remove(filepath.Join(w.folder, name+".yaml")))
	case "hub":
		w.hub.set(strings.TrimPrefix(name, "default."), nil)
	}
}

// names returns the names of the clusters of a source, or of all sources if it is "".
func (w *sourcesWorld) names(source string) []string {
	var all []string
	for name, p := range w.want {
		if source == "" || p.source == source {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// some returns one of several values.
func some[T any](w *sourcesWorld, all []T) T { return all[w.rng.IntN(len(all))] }

// spare returns a cluster that no source has.
func (w *sourcesWorld) spare() *origin {
	return some(w, slices.DeleteFunc(slices.Clone(w.origins), func(o *origin) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(w.want)), func(p *place) bool { return p.at == o })
	}))
}

// pause waits for a random time below a limit: faults last for different times.
func (w *sourcesWorld) pause(most time.Duration) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(most))))
}

// reload changes a source that has nothing to do with a fault, which opens all of them again.
func (w *sourcesWorld) reload(also map[string]any) {
	values := map[string]any{"sources.directories": []string{w.folder}}
	if folders, _ := w.c.values["sources.directories"].([]string); len(folders) == 1 {
		values["sources.directories"] = []string{w.folder, w.other}
	}
	maps.Copy(values, also)
	w.c.change(values)
}

// present fails if a cluster is denied. One whose credentials are wrong cannot review the access of
// a caller, which is 503.
func (w *sourcesWorld) present(what string) {
	w.t.Helper()
	for _, name := range w.names("") {
		if code, body := w.c.get("/clusters/"+name+"/api/v1/pods?limit=1", w.c.owner()); code != http.StatusOK &&
			code != http.StatusServiceUnavailable {
			w.t.Errorf("%s: %s: %d %s", what, name, code, body)
		}
	}
}

// touch changes pods.
func (w *sourcesWorld) touch() {
	for _, name := range w.names("") {
		w.want[name].at.cluster.Touch(w.rng.IntN(10))
	}
}

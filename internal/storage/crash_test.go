// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	rand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/reader"
	"github.com/watershed-project/watershed/wire"
)

const (
	childDirectory = "WATERSHED_DISK_CHILD"
	childSeed      = "WATERSHED_DISK_SEED"
)

// childMirrors are the mirrors of the child, with their number of objects.
var childMirrors = map[string]int{"configmaps": 2, "pods": 80}

// stateLine is a line of the child's file of states, written before the state is appended.
type stateLine struct {
	Resource string
	Version  uint64
	Sum      string
}

// sumOf returns a hash of the bytes of objects by key.
func sumOf(objects map[string]string) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		fmt.Fprintf(h, "%s %s\n", key, objects[key])
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// bytesOf returns the bytes of objects by key.
func bytesOf(objects []*wire.Object) map[string]string {
	all := map[string]string{}
	for _, o := range objects {
		all[o.Key()] = string(o.Bytes())
	}
	return all
}

// readStates returns the hash of each state, and the highest version.
func readStates(path string) (map[string]map[uint64]string, uint64) {
	all, highest := map[string]map[uint64]string{}, uint64(100)
	b, _ := os.ReadFile(path)
	for line := range bytes.Lines(b) {
		var l stateLine
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &l) != nil {
			continue // the child was killed
		}
		if all[l.Resource] == nil {
			all[l.Resource] = map[uint64]string{}
		}
		all[l.Resource][l.Version] = l.Sum
		highest = max(highest, l.Version)
	}
	return all, highest
}

// childTB lets the child use the functions of tests.
type childTB struct{ testing.TB }

func (childTB) Helper() {}

func (childTB) Cleanup(func()) {}

func (childTB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(3)
}

// runChild writes to a directory until the process is killed.
func runChild(path string) {
	var seed uint64
	_, _ = fmt.Sscan(os.Getenv(childSeed), &seed)
	states := filepath.Join(filepath.Dir(path), "states")
	_, highest := readStates(states)
	f, err := os.OpenFile(states, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(childTB{}, err)
	_, _ = f.WriteString("\n") // ends an incomplete line
	d := openDirectory(childTB{}, path, &Options{Window: 2 * time.Second})
	var worlds []*world
	for resource, size := range childMirrors {
		m := openMirror(childTB{}, d, identify(resource), MirrorOptions{})
		s, err := m.Load(0)
		w := newWorld(childTB{}, m, seed)
		w.keys, w.version = size, highest
		w.before = func(version uint64, objects map[string]string) {
			line, _ := json.Marshal(stateLine{resource, version, sumOf(objects)})
			_, err := f.Write(append(line, '\n'))
			must(childTB{}, err)
		}
		if err == nil {
			w.resume(s)
			w.bookmark()
		} else {
			w.fill(size)
		}
		worlds = append(worlds, w)
	}
	// On a busy machine, what is not open within the window would be removed.
	go d.Run(context.Background()) //nolint:errcheck // it ends with the process
	fmt.Fprintln(os.Stdout, "ready")
	for n := 0; ; n++ {
		worlds[n%len(worlds)].random()
		time.Sleep(time.Duration(worlds[0].rand.IntN(300)) * time.Microsecond) // the pace of the changes
	}
}

// TestCrash_kill kills a writing process at random moments. After each, the files have a
// state that was true.
func TestCrash_kill(t *testing.T) {
	kills := 60
	if testing.Short() {
		kills = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	path := filepath.Join(t.TempDir(), "data")
	loaded, records, versions, stored := 0, 0, map[uint64]bool{}, map[string]bool{}
	for n := range kills {
		killChild(t, path, seed+uint64(n), time.Duration(r.IntN(120))*time.Millisecond)
		states, _ := readStates(filepath.Join(filepath.Dir(path), "states"))
		d, err := Open(path, Options{})
		must(t, err)
		for resource := range childMirrors {
			m, err := d.Cluster("east").Mirror(identify(resource), MirrorOptions{})
			must(t, err)
			s, err := m.Load(1 << 20)
			rejected := (*Rejection)(nil)
			if errors.As(err, &rejected) && rejected.Reason == reader.Absent && !stored[resource] {
				continue // each child was killed before it had written the first state
			}
			must(t, err)
			stored[resource] = true
			sum := sumOf(bytesOf(s.Objects))
			if want, ok := states[resource][s.Version]; !ok || sum != want {
				t.Fatalf("seed %d, kill %d: %s at version %d was not true (known: %v)", seed, n, resource, s.Version,
					ok)
			}
			loaded++
			versions[s.Version] = true
			records += len(s.Records)
			if err := checkUndone(s, states[resource]); err != nil {
				t.Fatalf("seed %d, kill %d: %s: %v", seed, n, resource, err)
			}
			for range 5 {
				m := Moment{Version: s.Version - uint64(r.IntN(int(s.Version)))}
				if err := checkSum(d.Cluster("east"), identify(resource), m, states[resource]); err != nil {
					t.Fatalf("seed %d, kill %d: %s: %v", seed, n, resource, err)
				}
			}
		}
		must(t, d.Close())
	}
	t.Logf("%d states, %d records", loaded, records)
	if loaded < kills || len(versions) < kills/2 || records < kills {
		t.Errorf("%d states were loaded, %d different ones, %d records", loaded, len(versions), records)
	}
}

// checkUndone undoes the records of a state with their old objects, and compares each state
// before with the states that were true.
func checkUndone(s *State, sums map[uint64]string) error {
	now := bytesOf(s.Objects)
	for i, r := range slices.Backward(s.Records) {
		for _, c := range slices.Backward(r.Changes) {
			if c.Old == nil {
				delete(now, c.Key)
			} else {
				now[c.Key] = string(c.Old.Bytes())
			}
		}
		version := s.After
		if i > 0 {
			version = s.Records[i-1].Version
		}
		if sum := sumOf(now); sum != sums[version] {
			return fmt.Errorf("the state of version %d before the record of version %d is false", version, r.Version)
		}
	}
	return nil
}

// checkSum reads a state of the past. It must be one that was true, or too old.
func checkSum(c *Cluster, id Identity, m Moment, sums map[uint64]string) error {
	s, err := c.At(id, m)
	if tooOld := (*TooOldError)(nil); errors.As(err, &tooOld) {
		if sums[tooOld.Version] == "" || tooOld.Version <= m.Version {
			return err
		}
		return nil
	}
	if errors.Is(err, reader.ErrBetween) && sums[m.Version] == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Version > m.Version || sumOf(bytesOf(s.Objects)) != sums[s.Version] {
		return fmt.Errorf("%v: the state of version %d is false", m, s.Version)
	}
	return nil
}

// killChild runs a child for a while after it is ready.
func killChild(t *testing.T, path string, seed uint64, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDirectory+"="+path, fmt.Sprintf("%s=%d", childSeed, seed))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the child printed %q: %v: %s", line, err, stderr.String())
	}
	time.Sleep(after) // the child writes in this time
	must(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
}

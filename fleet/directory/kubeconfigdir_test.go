// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

func newKubeconfigDir(log *logBuffer, path string) *directory.KubeconfigDir {
	return directory.Poll(directory.NewKubeconfigDir(path, &directory.KubeconfigDirOptions{Logger: log.logger()}),
		testInterval)
}

func TestKubeconfigDir_names(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a.yaml", "b.yml", "c.kubeconfig", "d.conf", "e", "f.prod", "g.conf.yaml", "h.json",
		".hidden.yaml", "..data", "i.yaml~",
	} {
		write(t, kubeconfigWith(nil, "x"), dir, name)
	}
	must(t, os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o700))
	follow(t, newKubeconfigDir(&logBuffer{}, dir)).names("a", "b", "c", "d", "e", "f.prod", "g.conf", "h.json")
}

func TestKubeconfigDir_whichContext(t *testing.T) {
	dir := t.TempDir()
	write(t, kubeconfigWith(nil, "x", "y"), dir, "current")
	write(t, kubeconfigWith(func(k *clientcmdapi.Config) { k.CurrentContext = "" }, "y"), dir, "only")
	write(t, kubeconfigWith(func(k *clientcmdapi.Config) { k.CurrentContext = "" }, "x", "y"), dir, "neither")
	write(t, kubeconfigWith(nil), dir, "none")
	write(t, kubeconfigWith(func(k *clientcmdapi.Config) { k.CurrentContext = "z" }, "x"), dir, "wrong")
	got := follow(t, newKubeconfigDir(&logBuffer{}, dir)).names("current", "only", "neither", "none", "wrong")
	if got["current"].Config.Host != "https://x.example.com" || got["only"].Config.Host != "https://y.example.com" {
		t.Errorf("got %v", describe(got))
	}
	for _, name := range []string{"neither", "none", "wrong"} {
		if err := got[name].Err; err == nil || !strings.Contains(err.Error(), "file "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKubeconfigDir_follow(t *testing.T) {
	var log logBuffer
	dir := t.TempDir()
	seen := follow(t, newKubeconfigDir(&log, dir))
	seen.names()
	write(t, kubeconfigWith(nil, "x"), dir, "a.yaml")
	a := seen.names("a")["a"]
	replace(t, kubeconfigWith(nil, "y"), dir, "b.yaml")
	seen.names("a", "b")

	broken := kubeconfigWith(func(k *clientcmdapi.Config) { k.AuthInfos["x"].Token = "another" }, "x")
	write(t, broken[:len(broken)/2], dir, "a.yaml")
	got := seen.until("it is cut off", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	if len(got) != 2 || got["b"].Err != nil {
		t.Errorf("it is cut off: %v", describe(got))
	}
	write(t, nil, dir, "a.yaml")
	seen.until("it is empty", func(m map[string]fleet.Entry) bool {
		return m["a"].Err != nil && strings.Contains(m["a"].Err.Error(), "empty")
	})
	write(t, broken, dir, "a.yaml")
	seen.until("it is whole", func(m map[string]fleet.Entry) bool {
		return m["a"].Err == nil && m["a"].Access != a.Access
	})

	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	seen.names("a")
	must(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "c")))
	seen.names("c")
	if log.String() != "" {
		t.Errorf("logged:\n%s", log.String())
	}
}

// TestKubeconfigDir_replaced removes a file and writes it anew, a moment later.
func TestKubeconfigDir_replaced(t *testing.T) {
	dir := t.TempDir()
	path := write(t, kubeconfigWith(nil, "x"), dir, "a")
	seen := follow(t, newKubeconfigDir(&logBuffer{}, dir))
	was := seen.names("a")["a"]
	begin := time.Now()
	must(t, os.Remove(path))
	time.Sleep(3 * testInterval) // polls see that the file is away
	write(t, kubeconfigWith(nil, "y"), path)
	if time.Since(begin) > 8*testInterval {
		t.Skip("the machine is too busy: the file is away for too long")
	}
	seen.until("the new one", func(m map[string]fleet.Entry) bool { return m["a"].Access != was.Access })
	if n := seen.count(); n != 2 {
		t.Errorf("%d reports, want 2", n)
	}
}

// TestKubeconfigDir_mountedSecret updates the files as kubelet updates a mounted Secret.
func TestKubeconfigDir_mountedSecret(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-time.Hour) // so that only the inode changes
	mount := func(version string, files map[string][]byte) {
		t.Helper()
		must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		for name, data := range files {
			must(t, os.Chtimes(write(t, data, dir, version, name), long, long))
		}
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		for name := range files {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil &&
				!os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	ca, _ := certificate(t)
	kubeconfig := func(server string) []byte {
		return kubeconfigWith(func(k *clientcmdapi.Config) { k.Clusters["x"].Server = "https://" + server }, "x")
	}
	mount("..2026_01", map[string][]byte{"a.yaml": kubeconfig("one"), "b.yaml": kubeconfig("two")})
	seen := follow(t, newKubeconfigDir(&logBuffer{}, dir))
	was := seen.names("a", "b")
	mount("..2026_02", map[string][]byte{"a.yaml": kubeconfig("six"), "b.yaml": kubeconfig("two"),
		"c.yaml": kubeconfigWith(func(k *clientcmdapi.Config) {
			k.Clusters["x"].CertificateAuthority = "ca.crt"
		}, "x"), "ca.crt": ca})
	must(t, os.RemoveAll(filepath.Join(dir, "..2026_01")))
	got := seen.until("another version", func(m map[string]fleet.Entry) bool {
		return m["a"].Access != was["a"].Access && m["c"].Config != nil
	})
	if got["a"].Config.Host != "https://six" || got["b"].Access != was["b"].Access ||
		string(got["c"].Config.CAData) != string(ca) {
		t.Errorf("another version: %v", describe(got))
	}
	// A file that is not a kubeconfig is a cluster with an error.
	if got["ca.crt"].Err == nil {
		t.Error("a certificate is a cluster")
	}
	mount("..2026_03", map[string][]byte{"a.yaml": kubeconfig("six")})
	for _, name := range []string{"b.yaml", "c.yaml", "ca.crt"} {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	seen.names("a")
}

func TestKubeconfigDir_vanishes(t *testing.T) {
	var log logBuffer
	dir := filepath.Join(t.TempDir(), "clusters")
	seen := follow(t, newKubeconfigDir(&log, dir))
	seen.quiet("it is not there yet")
	if n := strings.Count(log.String(), "stay as they are"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	must(t, os.Mkdir(dir, 0o700))
	write(t, kubeconfigWith(nil, "x"), dir, "a")
	write(t, kubeconfigWith(nil, "y"), dir, "b")
	seen.names("a", "b")
	must(t, os.Rename(dir, dir+"-away"))
	seen.quiet("it is away")
	must(t, os.Rename(dir+"-away", dir))
	seen.quiet("it is back")
	must(t, os.Rename(dir, dir+"-away"))
	must(t, os.Remove(filepath.Join(dir+"-away", "b")))
	seen.quiet("it is away again")
	must(t, os.Rename(dir+"-away", dir))
	seen.names("a")
}

func TestKubeconfigDir_links(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target := filepath.Join(elsewhere, "target")
	must(t, os.Symlink(target, filepath.Join(dir, "a")))
	seen := follow(t, newKubeconfigDir(&logBuffer{}, dir))
	if got := seen.names("a"); got["a"].Err == nil {
		t.Error("a link that leads nowhere is a cluster")
	}
	write(t, kubeconfigWith(nil, "x"), target)
	seen.until("it leads somewhere", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	must(t, os.Remove(target))
	seen.until("it leads nowhere", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	must(t, os.Remove(filepath.Join(dir, "a")))
	seen.names()
}

func TestKubeconfigDir_denied(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("nothing is denied to root")
	}
	dir := t.TempDir()
	path := write(t, kubeconfigWith(nil, "x"), dir, "a")
	must(t, os.Chmod(path, 0))
	seen := follow(t, newKubeconfigDir(&logBuffer{}, dir))
	if got := seen.names("a"); got["a"].Err == nil {
		t.Error("it may not be read and is a cluster")
	}
	must(t, os.Chmod(path, 0o600))
	seen.until("it may be read", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	must(t, os.Chmod(dir, 0))
	defer os.Chmod(dir, 0o700)
	seen.quiet("the directory may not be read")
}

func TestKubeconfigDir_clash(t *testing.T) {
	var log logBuffer
	dir := t.TempDir()
	write(t, kubeconfigWith(nil, "x"), dir, "a.yaml")
	write(t, kubeconfigWith(nil, "y"), dir, "a.yml")
	seen := follow(t, newKubeconfigDir(&log, dir))
	if host := seen.names("a")["a"].Config.Host; host != "https://x.example.com" {
		t.Errorf("the second file is used: %s", host)
	}
	write(t, kubeconfigWith(nil, "z"), dir, "b")
	seen.names("a", "b")
	if n := strings.Count(log.String(), "left out"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	seen.until("the other one", func(m map[string]fleet.Entry) bool {
		return m["a"].Config.Host == "https://y.example.com"
	})
	write(t, kubeconfigWith(nil, "x"), dir, "a.yaml")
	seen.until("the first one again", func(m map[string]fleet.Entry) bool {
		return m["a"].Config.Host == "https://x.example.com"
	})
	if n := strings.Count(log.String(), "left out"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// TestKubeconfigDir_sameTime changes a file without a change of its modification time, as on a
// file system that counts seconds.
func TestKubeconfigDir_sameTime(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	path := write(t, kubeconfigWith(nil, "x"), dir, "a")
	must(t, os.Chtimes(path, now, now))
	seen := follow(t, directory.Poll(directory.NewKubeconfigDir(dir, nil), quietPeriod))
	was := seen.names("a")["a"]
	write(t, kubeconfigWith(nil, "z"), path)
	must(t, os.Chtimes(path, now, now))
	seen.until("the other one", func(m map[string]fleet.Entry) bool { return m["a"].Access != was.Access })
}

// TestKubeconfigDir_many shows that polling a thousand files is cheap.
func TestKubeconfigDir_many(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	for i := range n {
		write(t, kubeconfigWith(nil, "x"), dir, "c"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
	}
	seen := follow(t, directory.NewKubeconfigDir(dir, nil))
	begin := time.Now()
	seen.until("all", func(m map[string]fleet.Entry) bool { return len(m) == n })
	t.Logf("%d files were read in %s", n, time.Since(begin).Round(time.Millisecond))
	if seen.count() != 1 {
		t.Errorf("%d reports, want 1", seen.count())
	}
}

// TestKubeconfigDir_invalidNames leaves out files that a cluster cannot be named after.
func TestKubeconfigDir_invalidNames(t *testing.T) {
	log := &logBuffer{}
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "caf\xe9.yaml", "b\nc.yaml"} {
		write(t, kubeconfigWith(nil, "x"), dir, name)
	}
	seen := follow(t, newKubeconfigDir(log, dir))
	seen.names("a")
	write(t, kubeconfigWith(nil, "x"), dir, "d.yaml")
	seen.names("a", "d")
	if n := strings.Count(log.String(), "file left out"); n != 2 ||
		!strings.Contains(log.String(), "not valid UTF-8") || !strings.Contains(log.String(), "without a glyph") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

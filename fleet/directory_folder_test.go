// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

func dirFolder(log *dirLog, path string) *fleet.Folder {
	return fleet.NewFolder(path, &fleet.FolderOptions{Interval: dirInterval, Logger: log.logger()})
}

func TestFolder_names(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a.yaml", "b.yml", "c.kubeconfig", "d.conf", "e", "f.prod", "g.conf.yaml", "h.json",
		".hidden.yaml", "..data", "i.yaml~",
	} {
		dirWrite(t, dirKubeconfig(nil, "x"), dir, name)
	}
	dirMust(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700))
	dirFollow(t, dirFolder(&dirLog{}, dir)).names("a", "b", "c", "d", "e", "f.prod", "g.conf", "h.json")
}

func TestFolder_whichContext(t *testing.T) {
	dir := t.TempDir()
	dirWrite(t, dirKubeconfig(nil, "x", "y"), dir, "current")
	dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) { k.CurrentContext = "" }, "y"), dir, "only")
	dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) { k.CurrentContext = "" }, "x", "y"), dir, "neither")
	dirWrite(t, dirKubeconfig(nil), dir, "none")
	dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) { k.CurrentContext = "z" }, "x"), dir, "wrong")
	got := dirFollow(t, dirFolder(&dirLog{}, dir)).names("current", "only", "neither", "none", "wrong")
	if got["current"].Config.Host != "https://x.example.com" || got["only"].Config.Host != "https://y.example.com" {
		t.Errorf("got %v", dirText(got))
	}
	for _, name := range []string{"neither", "none", "wrong"} {
		if err := got[name].Err; err == nil || !strings.Contains(err.Error(), "file "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolder_follow(t *testing.T) {
	var log dirLog
	dir := t.TempDir()
	told := dirFollow(t, dirFolder(&log, dir))
	told.names()
	dirWrite(t, dirKubeconfig(nil, "x"), dir, "a.yaml")
	a := told.names("a")["a"]
	dirRename(t, dirKubeconfig(nil, "y"), dir, "b.yaml")
	told.names("a", "b")

	broken := dirKubeconfig(func(k *clientcmdapi.Config) { k.AuthInfos["x"].Token = "another" }, "x")
	dirWrite(t, broken[:len(broken)/2], dir, "a.yaml")
	got := told.until("it is cut off", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	if len(got) != 2 || got["b"].Err != nil {
		t.Errorf("it is cut off: %v", dirText(got))
	}
	dirWrite(t, nil, dir, "a.yaml")
	told.until("it is empty", func(m map[string]fleet.Entry) bool {
		return m["a"].Err != nil && strings.Contains(m["a"].Err.Error(), "empty")
	})
	dirWrite(t, broken, dir, "a.yaml")
	told.until("it is whole", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil && m["a"].Access != a.Access })

	dirMust(t, os.Remove(filepath.Join(dir, "b.yaml")))
	told.names("a")
	dirMust(t, os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "c")))
	told.names("c")
	if log.String() != "" {
		t.Errorf("logged:\n%s", log.String())
	}
}

// TestFolder_replaced removes a file and writes it anew, a moment later.
func TestFolder_replaced(t *testing.T) {
	dir := t.TempDir()
	path := dirWrite(t, dirKubeconfig(nil, "x"), dir, "a")
	told := dirFollow(t, dirFolder(&dirLog{}, dir))
	was := told.names("a")["a"]
	begin := time.Now()
	dirMust(t, os.Remove(path))
	time.Sleep(3 * dirInterval)
	dirWrite(t, dirKubeconfig(nil, "y"), path)
	if time.Since(begin) > 8*dirInterval {
		t.Skip("the machine is too busy: the file is away for too long")
	}
	told.until("the new one", func(m map[string]fleet.Entry) bool { return m["a"].Access != was.Access })
	if n := told.times(); n != 2 {
		t.Errorf("told %d times, want 2", n)
	}
}

// TestFolder_mountedSecret does as kubelet does.
func TestFolder_mountedSecret(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-time.Hour) // so that only the inode tells
	mount := func(version string, files map[string][]byte) {
		t.Helper()
		dirMust(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		for name, data := range files {
			dirMust(t, os.Chtimes(dirWrite(t, data, dir, version, name), long, long))
		}
		dirMust(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		dirMust(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		for name := range files {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
	ca, _ := dirCertificate(t)
	kubeconfig := func(server string) []byte {
		return dirKubeconfig(func(k *clientcmdapi.Config) { k.Clusters["x"].Server = "https://" + server }, "x")
	}
	mount("..2026_01", map[string][]byte{"a.yaml": kubeconfig("one"), "b.yaml": kubeconfig("two")})
	told := dirFollow(t, dirFolder(&dirLog{}, dir))
	was := told.names("a", "b")
	mount("..2026_02", map[string][]byte{"a.yaml": kubeconfig("six"), "b.yaml": kubeconfig("two"), "c.yaml": dirKubeconfig(func(k *clientcmdapi.Config) {
		k.Clusters["x"].CertificateAuthority = "ca.crt"
	}, "x"), "ca.crt": ca})
	dirMust(t, os.RemoveAll(filepath.Join(dir, "..2026_01")))
	got := told.until("another version", func(m map[string]fleet.Entry) bool { return m["a"].Access != was["a"].Access && m["c"].Config != nil })
	if got["a"].Config.Host != "https://six" || got["b"].Access != was["b"].Access || string(got["c"].Config.CAData) != string(ca) {
		t.Errorf("another version: %v", dirText(got))
	}
	// What is no kubeconfig is a cluster that cannot be reached: nobody can tell.
	if got["ca.crt"].Err == nil {
		t.Error("a certificate is a cluster")
	}
	mount("..2026_03", map[string][]byte{"a.yaml": kubeconfig("six")})
	for _, name := range []string{"b.yaml", "c.yaml", "ca.crt"} {
		dirMust(t, os.Remove(filepath.Join(dir, name)))
	}
	told.names("a")
}

func TestFolder_vanishes(t *testing.T) {
	var log dirLog
	dir := filepath.Join(t.TempDir(), "clusters")
	told := dirFollow(t, dirFolder(&log, dir))
	told.calm("it is not there yet")
	if n := strings.Count(log.String(), "stay as they were"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	dirMust(t, os.Mkdir(dir, 0o700))
	dirWrite(t, dirKubeconfig(nil, "x"), dir, "a")
	dirWrite(t, dirKubeconfig(nil, "y"), dir, "b")
	told.names("a", "b")
	dirMust(t, os.Rename(dir, dir+"-away"))
	told.calm("it is away")
	dirMust(t, os.Rename(dir+"-away", dir))
	told.calm("it is back")
	dirMust(t, os.Rename(dir, dir+"-away"))
	dirMust(t, os.Remove(filepath.Join(dir+"-away", "b")))
	told.calm("it is away again")
	dirMust(t, os.Rename(dir+"-away", dir))
	told.names("a")
}

func TestFolder_links(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target := filepath.Join(elsewhere, "target")
	dirMust(t, os.Symlink(target, filepath.Join(dir, "a")))
	told := dirFollow(t, dirFolder(&dirLog{}, dir))
	if got := told.names("a"); got["a"].Err == nil {
		t.Error("a link that leads nowhere is a cluster")
	}
	dirWrite(t, dirKubeconfig(nil, "x"), target)
	told.until("it leads somewhere", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	dirMust(t, os.Remove(target))
	told.until("it leads nowhere", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	dirMust(t, os.Remove(filepath.Join(dir, "a")))
	told.names()
}

func TestFolder_denied(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("nothing is denied to root")
	}
	dir := t.TempDir()
	path := dirWrite(t, dirKubeconfig(nil, "x"), dir, "a")
	dirMust(t, os.Chmod(path, 0))
	told := dirFollow(t, dirFolder(&dirLog{}, dir))
	if got := told.names("a"); got["a"].Err == nil {
		t.Error("it may not be read and is a cluster")
	}
	dirMust(t, os.Chmod(path, 0o600))
	told.until("it may be read", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	dirMust(t, os.Chmod(dir, 0))
	defer os.Chmod(dir, 0o700)
	told.calm("the folder may not be read")
}

func TestFolder_clash(t *testing.T) {
	var log dirLog
	dir := t.TempDir()
	dirWrite(t, dirKubeconfig(nil, "x"), dir, "a.yaml")
	dirWrite(t, dirKubeconfig(nil, "y"), dir, "a.yml")
	told := dirFollow(t, dirFolder(&log, dir))
	if host := told.names("a")["a"].Config.Host; host != "https://x.example.com" {
		t.Errorf("the second one counts: %s", host)
	}
	dirWrite(t, dirKubeconfig(nil, "z"), dir, "b")
	told.names("a", "b")
	if n := strings.Count(log.String(), "left out"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	dirMust(t, os.Remove(filepath.Join(dir, "a.yaml")))
	told.until("the other one", func(m map[string]fleet.Entry) bool { return m["a"].Config.Host == "https://y.example.com" })
	dirWrite(t, dirKubeconfig(nil, "x"), dir, "a.yaml")
	told.until("the first one again", func(m map[string]fleet.Entry) bool { return m["a"].Config.Host == "https://x.example.com" })
	if n := strings.Count(log.String(), "left out"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// TestFolder_sameTime changes a file again, in a file system that counts seconds.
func TestFolder_sameTime(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	path := dirWrite(t, dirKubeconfig(nil, "x"), dir, "a")
	dirMust(t, os.Chtimes(path, now, now))
	told := dirFollow(t, fleet.NewFolder(dir, &fleet.FolderOptions{Interval: dirCalm}))
	was := told.names("a")["a"]
	dirWrite(t, dirKubeconfig(nil, "z"), path)
	dirMust(t, os.Chtimes(path, now, now))
	told.until("the other one", func(m map[string]fleet.Entry) bool { return m["a"].Access != was.Access })
}

// TestFolder_many is the reason to look at files and not to watch them.
func TestFolder_many(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	for i := range n {
		dirWrite(t, dirKubeconfig(nil, "x"), dir, "c"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
	}
	told := dirFollow(t, fleet.NewFolder(dir, nil))
	begin := time.Now()
	told.until("all", func(m map[string]fleet.Entry) bool { return len(m) == n })
	t.Logf("%d files were read in %s", n, time.Since(begin).Round(time.Millisecond))
	if told.times() != 1 {
		t.Errorf("told %d times", told.times())
	}
}

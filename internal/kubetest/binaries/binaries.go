// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package binaries defines which commands the test clusters run, in which versions, and
// where on this machine they are kept once built.
//
// The versions are those that the modules below this folder require: their go.mod files
// are the only place where a version is written. One may be overridden:
// $WATERSHED_KUBE_VERSION runs the tests with another version of Kubernetes, and leaves
// etcd, kwok and helm as they are. The built commands are kept outside the checkout, in
// $WATERSHED_CACHE or else the user's cache directory, in one directory per component and
// version. So versions never share a file, and all checkouts on the machine share one
// build.
//
// A file under its final name is complete: builders write elsewhere and rename. Nothing
// here builds, blocks or starts goroutines.
package binaries

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// CacheVariable is the name of the environment variable that moves the cache directory.
const CacheVariable = "WATERSHED_CACHE"

// VersionVariable is the name of the environment variable that selects another version of
// Kubernetes than the checkout requires, such as v1.33.13.
const VersionVariable = "WATERSHED_KUBE_VERSION"

const mainModule = "github.com/watershed-project/watershed"

// Command is one binary that the test clusters run.
type Command struct {
	Name    string // as it is started: kube-apiserver
	Version string // as its module is required: v1.37.1
	Package string // the main package that makes it
	Module  string // the module whose version it has
	Source  string // folder of the nested module to build it in; empty if no module of the checkout has this version
	Path    string // where the binary is, once built
}

// Set has all commands that the test clusters run.
type Set struct {
	Etcd              Command
	APIServer         Command
	ControllerManager Command
	Scheduler         Command
	Kubectl           Command
	Kwok              Command

	// Helm is a client that one test runs. It is not part of All, because building it takes
	// minutes: kubebuild builds it if it is asked to.
	Helm Command

	// Stages is the folder of the files that define for kwok how nodes and pods live.
	Stages string
}

// All returns the commands in the best order to build them: those of the smallest cluster
// come first.
func (s *Set) All() []Command {
	return []Command{s.Etcd, s.APIServer, s.Kubectl, s.ControllerManager, s.Scheduler, s.Kwok}
}

// Missing returns the paths that do not exist yet.
func (s *Set) Missing() []string {
	var missing []string
	for _, c := range s.All() {
		if _, err := os.Stat(c.Path); err != nil {
			missing = append(missing, c.Path)
		}
	}
	if _, err := os.Stat(s.Stages); err != nil {
		missing = append(missing, s.Stages)
	}
	return missing
}

// Load reads the versions from the checkout that contains the working directory, and that
// of Kubernetes from [VersionVariable] if it is set. It does not check whether the
// commands are built: see [Set.Missing].
func Load() (*Set, error) {
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	l := loader{cache: cache, source: filepath.Join(root, "internal", "kubetest", "binaries")}
	if l.override, err = override(); err != nil {
		return nil, err
	}
	s := &Set{
		Etcd:              l.command("etcd", "etcd", "go.etcd.io/etcd/server/v3", "."),
		APIServer:         l.kubernetes("kube-apiserver"),
		ControllerManager: l.kubernetes("kube-controller-manager"),
		Scheduler:         l.kubernetes("kube-scheduler"),
		Kubectl:           l.kubernetes("kubectl"),
		Kwok:              l.command("kwok", "kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
		Helm:              l.command("helm", "helm", "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm"),
	}
	s.Stages = filepath.Join(filepath.Dir(s.Kwok.Path), "stages")
	return s, l.err
}

// CacheDir returns the folder of the built commands, which has one folder per component
// and version.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache directory: %w (set %s)", err, CacheVariable)
	}
	return filepath.Join(dir, "watershed"), nil
}

// override returns the version of Kubernetes that the environment selects, or "". It
// becomes the name of a folder and part of a build's flags, so only plain versions are
// accepted.
func override() (string, error) {
	v := os.Getenv(VersionVariable)
	if v != "" && (semver.Canonical(v) != v || semver.Major(v) != "v1") {
		return "", fmt.Errorf("version %q in %s: not of the form v1.33.13", v, VersionVariable)
	}
	return v, nil
}

// checkout returns the project's folder, above the working directory. Tests run in the
// folder of their package, so this works for every test of the project, including nested
// modules.
func checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if modfile.ModulePath(data) == mainModule {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("checkout of %s: not found in or above %s", mainModule, start)
		}
	}
}

// loader keeps the first error so that Load reads as a list.
type loader struct {
	cache    string
	source   string
	override string // another version of Kubernetes
	err      error
}

func (l *loader) kubernetes(name string) Command {
	c := l.command("kubernetes", name, "k8s.io/kubernetes", "k8s.io/kubernetes/cmd/"+name)
	if l.override != "" && l.override != c.Version {
		c.Version, c.Source = l.override, ""
		c.Path = l.path("kubernetes", c.Version, name)
	}
	return c
}

func (l *loader) command(component, name, module, pkg string) Command {
	source := filepath.Join(l.source, component)
	version, err := required(filepath.Join(source, "go.mod"), module)
	if err != nil && l.err == nil {
		l.err = err
	}
	return Command{
		Name:    name,
		Version: version,
		Package: pkg,
		Module:  module,
		Source:  source,
		Path:    l.path(component, version, name),
	}
}

func (l *loader) path(component, version, name string) string {
	return filepath.Join(l.cache, component, version, name)
}

// required returns the version of module that the go.mod at path requires.
func required(path, module string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	f, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range f.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("version of %s: %s does not require it", module, path)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command kind stands in for kind, which needs a container engine, when the pages are run.
// It has the subcommands and flags that kind v0.33 documents, and no others. A cluster that
// it "creates" is one that the test has started: the folder in WATERSHED_KIND has a kubeconfig
// of each, and the name of a file that is in use is the name of the cluster.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/snippets"
)

// folderVariable names the folder with the clusters. The files of those that are free begin
// with freePrefix.
const (
	folderVariable = "WATERSHED_KIND"
	freePrefix     = "free-"
)

// flags are what the command line of a subcommand may have.
type flags struct {
	name, image, config, kubeconfig string
	nodes                           []string
	wait                            time.Duration
	retain, internal                bool
}

// command is a subcommand of kind, with the names of its flags.
type command struct {
	path  string
	flags []string
	run   func(f *flags, args []string) error
}

var commands = []command{
	{"create cluster", []string{"name", "image", "config", "kubeconfig", "retain", "wait"}, create},
	{"delete cluster", []string{"name", "kubeconfig"}, remove},
	{"get clusters", nil, list},
	{"get kubeconfig", []string{"name", "internal"}, show},
	{"load image-archive", []string{"name", "nodes"}, load},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ERROR:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("a subcommand such as create cluster is needed")
	}
	path := strings.Join(args[:2], " ")
	i := slices.IndexFunc(commands, func(c command) bool { return c.path == path })
	if i < 0 {
		return fmt.Errorf("unknown command %q", path)
	}
	f := &flags{}
	set := pflag.NewFlagSet(path, pflag.ContinueOnError)
	for _, name := range commands[i].flags {
		declare(set, f, name)
	}
	if err := set.Parse(args[2:]); err != nil {
		return err
	}
	return commands[i].run(f, set.Args())
}

func declare(set *pflag.FlagSet, f *flags, name string) {
	switch name {
	case "name":
		set.StringVarP(&f.name, name, "n", "kind", "")
	case "image":
		set.StringVar(&f.image, name, "", "")
	case "config":
		set.StringVar(&f.config, name, "", "")
	case "kubeconfig":
		set.StringVar(&f.kubeconfig, name, "", "")
	case "nodes":
		set.StringSliceVar(&f.nodes, name, nil, "")
	case "wait":
		set.DurationVar(&f.wait, name, 0, "")
	case "retain":
		set.BoolVar(&f.retain, name, false, "")
	case "internal":
		set.BoolVar(&f.internal, name, false, "")
	}
}

func file(name string) string { return filepath.Join(os.Getenv(folderVariable), name) }

// create takes a free cluster and adds its context to the kubeconfig, as kind does.
func create(f *flags, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	if _, err := os.Stat(file(f.name)); err == nil {
		return fmt.Errorf("node(s) already exist for a cluster with the name %q", f.name)
	}
	free, err := filepath.Glob(file(freePrefix + "*"))
	if err != nil {
		return err
	}
	if len(free) == 0 {
		return errors.New("the test has started no more clusters")
	}
	if err := os.Rename(free[0], file(f.name)); err != nil {
		return err
	}
	if err := os.MkdirAll(snippets.ImageDir(os.Getenv(folderVariable), f.name), 0o755); err != nil {
		return err
	}
	own, err := clientcmd.LoadFromFile(file(f.name))
	if err != nil {
		return err
	}
	err = modify(f.kubeconfig, func(c *clientcmdapi.Config, name string) { add(c, own, name) }, f.name)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Creating cluster %q ...\nSet kubectl context to \"kind-%s\"\n", f.name, f.name)
	return nil
}

// add adds the current context of a kubeconfig to another one, by the name that kind gives it.
func add(to, from *clientcmdapi.Config, name string) {
	context := from.Contexts[from.CurrentContext]
	cluster := from.Clusters[context.Cluster]
	user := from.AuthInfos[context.AuthInfo]
	// Entries are written to the file that they come from.
	cluster.LocationOfOrigin = ""
	user.LocationOfOrigin = ""
	to.Clusters[name] = cluster
	to.AuthInfos[name] = user
	to.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	to.CurrentContext = name
}

// remove deletes the entries of the kubeconfig. The test ends the cluster.
func remove(f *flags, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q", args[0])
	}
	fmt.Fprintf(os.Stderr, "Deleting cluster %q ...\n", f.name)
	if err := os.Remove(file(f.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return modify(f.kubeconfig, func(c *clientcmdapi.Config, name string) {
		delete(c.Clusters, name)
		delete(c.AuthInfos, name)
		delete(c.Contexts, name)
		if c.CurrentContext == name {
			c.CurrentContext = ""
		}
	}, f.name)
}

// modify changes the entries kind-NAME of a kubeconfig, of kubectl's default if it has no path.
func modify(path string, change func(c *clientcmdapi.Config, name string), name string) error {
	options := clientcmd.NewDefaultPathOptions()
	options.LoadingRules.ExplicitPath = path
	config, err := options.GetStartingConfig()
	if err != nil {
		return err
	}
	change(config, "kind-"+name)
	return clientcmd.ModifyConfig(options, *config, false)
}

func list(*flags, []string) error {
	entries, err := os.ReadDir(os.Getenv(folderVariable))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), freePrefix) {
			fmt.Fprintln(os.Stdout, e.Name())
		}
	}
	return nil
}

func show(f *flags, _ []string) error {
	own, err := clientcmd.LoadFromFile(file(f.name))
	if err != nil {
		return fmt.Errorf("could not locate any control plane nodes for cluster named %q", f.name)
	}
	shown := clientcmdapi.NewConfig()
	add(shown, own, "kind-"+f.name)
	text, err := clientcmd.Write(*shown)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// load checks what kind checks before it copies the images to the nodes, and links the archives into
// the folder of the images of the cluster, where the test's stand-in for the kubelet finds them.
func load(f *flags, args []string) error {
	if len(args) == 0 {
		return errors.New("a list of image archives is required")
	}
	if _, err := os.Stat(file(f.name)); err != nil {
		return fmt.Errorf("no nodes found for cluster %q", f.name)
	}
	for _, path := range args {
		if _, err := snippets.ReadArchive(path); err != nil {
			return err
		}
		dir := snippets.ImageDir(os.Getenv(folderVariable), f.name)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if err := os.Link(path, filepath.Join(dir, fmt.Sprint(len(entries)))); err != nil {
			return err
		}
	}
	return nil
}

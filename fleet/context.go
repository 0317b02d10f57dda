// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "fmt"

// Context is a context of kubeconfig files, as [Contexts.Read] finds it.
type Context struct {
	// Name is the name of the context, Cluster that of its cluster in a fleet.
	Name, Cluster string
	// Namespace is the context's own, "" if it has none.
	Namespace string
	// Exists is false for a name of [ContextsOptions.Contexts] that the files do not
	// have.
	Exists bool
}

// Read reads the files once and returns the contexts that [Contexts.Follow] would
// report, in the order of their names. The error says why none of the files, or one
// that exists, cannot be read.
func (c *Contexts) Read() ([]Context, error) {
	all, err := c.load(newReading())
	if err != nil {
		return nil, err
	}
	var found []Context
	for _, name := range c.names(all) {
		one := Context{Name: name, Cluster: contextCluster(name)}
		if k := all.Contexts[name]; k != nil {
			one.Namespace, one.Exists = k.Namespace, true
		}
		found = append(found, one)
	}
	return found, nil
}

// Paths returns the kubeconfig files that are read, those that do not exist included.
func (c *Contexts) Paths() []string {
	var paths []string
	for _, path := range c.opts.Paths {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// noContexts is the error for files of which none has anything in it.
func noContexts(paths []string) error {
	switch len(paths) {
	case 0:
		return fmt.Errorf("kubeconfig: no path")
	case 1:
		return fmt.Errorf("kubeconfig %s does not exist or is empty", paths[0])
	}
	return fmt.Errorf("kubeconfig: none of the files %q exists and has something in it", paths)
}

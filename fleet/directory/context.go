// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

// Context is a context of kubeconfig files, as [Kubeconfig.Read] returns it.
type Context struct {
	// Name is the name of the context.
	Name string
	// Cluster is the name of the context's cluster in a fleet.
	Cluster string
	// Namespace is the default namespace of the context, "" if it has none.
	Namespace string
	// Exists is false for a name in [KubeconfigOptions.Contexts] that the files do not
	// have.
	Exists bool
}

// Read reads the files once and returns the contexts that [Kubeconfig.Follow] would
// report, sorted by name. It returns an error if all files are missing or empty, or one
// cannot be parsed.
func (k *Kubeconfig) Read() ([]Context, error) {
	merged, err := k.load(newFileStates())
	if err != nil {
		return nil, err
	}
	var found []Context
	for _, name := range k.names(merged) {
		one := Context{Name: name, Cluster: contextCluster(name)}
		if c := merged.Contexts[name]; c != nil {
			one.Namespace, one.Exists = c.Namespace, true
		}
		found = append(found, one)
	}
	return found, nil
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet/directory"
)

// pluginExtension is the extension of a cluster's entry that configures credential plugins.
const pluginExtension = "client.authentication.k8s.io/exec"

// ownerName is the name of the user that has the owner's token, without the prefix.
const ownerName = "owner"

// credential is what a context of the new kubeconfig authenticates with.
type credential struct {
	// name is the name of the user, without the prefix.
	name string
	user *clientcmdapi.AuthInfo
	// cluster has the extension that configures the user's credential plugin, and nothing
	// else.
	cluster *clientcmdapi.Cluster
}

// ownerCredential returns the credential of the owner.
func ownerCredential(token string) *credential {
	return &credential{name: ownerName, user: &clientcmdapi.AuthInfo{Token: token}, cluster: &clientcmdapi.Cluster{}}
}

// isCertificate reports whether the credential is a client certificate, which names a user
// of one cluster.
func (c *credential) isCertificate() bool {
	u := c.user
	return u.Token == "" && u.TokenFile == "" && u.Exec == nil && u.AuthProvider == nil
}

// userKubeconfig is the kubeconfig of the user, with the contexts to use. Paths in it are
// absolute.
type userKubeconfig struct {
	// source names the files, for messages.
	source   string
	config   *clientcmdapi.Config
	contexts []directory.Context
}

// noKubeconfig returns a kubeconfig without entries.
func noKubeconfig() *userKubeconfig {
	return &userKubeconfig{source: "no kubeconfig", config: clientcmdapi.NewConfig()}
}

// readUserKubeconfig reads and merges files as kubectl does. Without paths it reads the
// files that kubectl reads. Names are the contexts to use, nil means all.
func readUserKubeconfig(paths, names []string) (*userKubeconfig, error) {
	files := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: paths, Contexts: names})
	found, err := files.Read()
	if err != nil {
		return nil, err
	}
	config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files.Paths()}).Load()
	if err != nil { // the error may quote a credential
		return nil, fmt.Errorf("%s cannot be parsed", files)
	}
	mine := &userKubeconfig{source: files.String(), config: config}
	for _, c := range found {
		if c.Exists && config.Contexts[c.Name] != nil {
			mine.contexts = append(mine.contexts, c)
		}
	}
	return mine, nil
}

// current returns the name of the current context, "" if there is none.
func (k *userKubeconfig) current() string { return k.config.CurrentContext }

// cluster returns the cluster of a context, nil if there is none.
func (k *userKubeconfig) cluster(context string) *clientcmdapi.Cluster {
	return k.config.Clusters[k.config.Contexts[context].Cluster]
}

// credential returns a copy of the credentials of a context: of everything that identifies
// the user, and nothing that concerns the connection to the cluster.
func (k *userKubeconfig) credential(context string) (*credential, error) {
	name := k.config.Contexts[context].AuthInfo
	user := k.config.AuthInfos[name]
	if user == nil {
		return nil, fmt.Errorf("its user %q does not exist", name)
	}
	c := &credential{name: name, user: user.DeepCopy(), cluster: &clientcmdapi.Cluster{}}
	c.user.LocationOfOrigin = ""
	if name == ownerName {
		c.name = "users/" + name
	}
	if c.isCertificate() && user.ClientCertificate == "" && len(user.ClientCertificateData) == 0 {
		return nil, errors.New("its user has no token, certificate or credential plugin")
	}
	if original := k.cluster(context); original != nil && user.Exec != nil {
		c.cluster.Extensions = original.DeepCopy().Extensions
		for name := range c.cluster.Extensions {
			if name != pluginExtension {
				delete(c.cluster.Extensions, name)
			}
		}
	}
	return c, nil
}

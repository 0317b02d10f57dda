// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package apiclient

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

// Credential is what a context of the new kubeconfig authenticates with.
type Credential struct {
	// Name is the name of the user, without the prefix.
	Name string
	User *clientcmdapi.AuthInfo
	// cluster has the extension that configures the user's credential plugin, and nothing
	// else.
	cluster *clientcmdapi.Cluster
}

// OwnerCredential returns the credential of the owner.
func OwnerCredential(token string) *Credential {
	return &Credential{Name: ownerName, User: &clientcmdapi.AuthInfo{Token: token}, cluster: &clientcmdapi.Cluster{}}
}

// IsCertificate reports whether the credential is a client certificate, which names a user
// of one cluster.
func (c *Credential) IsCertificate() bool {
	u := c.User
	return u.Token == "" && u.TokenFile == "" && u.Exec == nil && u.AuthProvider == nil
}

// UserKubeconfig is the kubeconfig of the user, with the contexts to use. Paths in it are
// absolute.
type UserKubeconfig struct {
	// Source names the files, for messages.
	Source   string
	Config   *clientcmdapi.Config
	Contexts []directory.Context
}

// EmptyKubeconfig returns a kubeconfig without entries.
func EmptyKubeconfig() *UserKubeconfig {
	return &UserKubeconfig{Source: "no kubeconfig", Config: clientcmdapi.NewConfig()}
}

// ReadUserKubeconfig reads and merges files as kubectl does. Without paths it reads the
// files that kubectl reads. Names are the contexts to use, nil means all.
func ReadUserKubeconfig(paths, names []string) (*UserKubeconfig, error) {
	files := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: paths, Contexts: names})
	found, err := files.Read()
	if err != nil {
		return nil, err
	}
	config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files.Paths()}).Load()
	if err != nil { // the error may quote a credential
		return nil, fmt.Errorf("%s cannot be parsed", files)
	}
	mine := &UserKubeconfig{Source: files.String(), Config: config}
	for _, c := range found {
		if c.Exists && config.Contexts[c.Name] != nil {
			mine.Contexts = append(mine.Contexts, c)
		}
	}
	return mine, nil
}

// Current returns the name of the current context, "" if there is none.
func (k *UserKubeconfig) Current() string { return k.Config.CurrentContext }

// Cluster returns the cluster of a context, nil if there is none.
func (k *UserKubeconfig) Cluster(context string) *clientcmdapi.Cluster {
	return k.Config.Clusters[k.Config.Contexts[context].Cluster]
}

// Credential returns a copy of the credentials of a context: of everything that identifies
// the user, and nothing that concerns the connection to the cluster.
func (k *UserKubeconfig) Credential(context string) (*Credential, error) {
	name := k.Config.Contexts[context].AuthInfo
	user := k.Config.AuthInfos[name]
	if user == nil {
		return nil, fmt.Errorf("its user %q does not exist", name)
	}
	c := &Credential{Name: name, User: user.DeepCopy(), cluster: &clientcmdapi.Cluster{}}
	c.User.LocationOfOrigin = ""
	if name == ownerName {
		c.Name = "users/" + name
	}
	if c.IsCertificate() && user.ClientCertificate == "" && len(user.ClientCertificateData) == 0 {
		return nil, errors.New("its user has no token, certificate or credential plugin")
	}
	if original := k.Cluster(context); original != nil && user.Exec != nil {
		c.cluster.Extensions = original.DeepCopy().Extensions
		for name := range c.cluster.Extensions {
			if name != pluginExtension {
				delete(c.cluster.Extensions, name)
			}
		}
	}
	return c, nil
}

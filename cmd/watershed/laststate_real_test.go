// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// lastWorld is a cluster that serve reaches over a network that the test controls.
type lastWorld struct {
	cluster *kubetest.Cluster
	network *kubetest.Proxy
	client  kubernetes.Interface
	data    string
}

// serve runs serve with the token of a user of the cluster, until the function returns.
func (w *lastWorld) serve(
	t *testing.T, user string,
	during func(t *testing.T, log *output, as func(token, root string) *pastReader, owner string),
) {
	t.Helper()
	t.Run("as "+user, func(t *testing.T) {
		config, err := clientcmd.LoadFromFile(w.cluster.Kubeconfig())
		expect.NoError(t, err)
		config.Clusters["a"].Server = "https://" + w.network.Addr()
		config.AuthInfos[config.Contexts["a"].AuthInfo].Token = w.cluster.UserConfig(user).BearerToken
		path := filepath.Join(t.TempDir(), "kubeconfig")
		expect.NoError(t, clientcmd.WriteToFile(*config, path))
		s := &state.Dir{Path: t.TempDir()}
		log, stop := startServe(t, s, "--kubeconfig", path, "--context", "a", "--resources", "configmaps,namespaces",
			"--home", "a", "--data-dir", w.data)
		target, err := apiclient.LocalTarget(*s, "")
		expect.NoError(t, err)
		during(t, log, func(token, root string) *pastReader {
			return readAs(t, target.URL+root, token, target.Authority)
		}, target.Owner)
		expect.NoError(t, stop())
	})
}

// TestServe_lastState restarts serve while its cluster is unreachable. The owner reads the last
// state until the cluster answers, and then the same watch goes on. If the cluster refuses the
// credentials, the state cannot be read any more, also after the next restart.
func TestServe_lastState(t *testing.T) {
	c := kubetest.Start(t, &kubetest.Options{
		Name: "a",
		Users: []kubetest.User{
			{Name: "eve", Groups: []string{"system:masters"}},
			{Name: "eva", Groups: []string{"system:masters"}},
		},
	})
	w := &lastWorld{
		cluster: c,
		network: c.Proxy(t),
		client:  kubernetes.NewForConfigOrDie(c.Config()),
		data:    filepath.Join(t.TempDir(), "data"),
	}
	create := func(name string) {
		t.Helper()
		_, err := w.client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	create("before")
	const path = "/api/v1/namespaces/default/configmaps"
	var before pastList
	w.serve(t, "eve", func(t *testing.T, _ *output, as func(token, root string) *pastReader, token string) {
		owner := as(token, "/clusters/a")
		expect.Soon(t, "a stored state", func() bool {
			code, _, _ := owner.get(path, url.Values{"at": {time.Now().Format(time.RFC3339Nano)}})
			return code == http.StatusOK
		})
		before = owner.list(path, nil)
	})

	w.network.Down()
	w.serve(t, "eva", func(t *testing.T, _ *output, as func(token, root string) *pastReader, token string) {
		owner := as(token, "/clusters/a")
		expect.Soon(t, "the last state", func() bool {
			code, _, _ := owner.get(path, nil)
			return code == http.StatusOK
		})
		if now := owner.list(path, nil); !reflect.DeepEqual(now.Items, before.Items) || len(now.Items) != 1 {
			t.Errorf("%d objects, and %d before the restart, or others", len(now.Items), len(before.Items))
		}
		for _, root := range []string{"/clusters/a", "/fleet"} {
			code, header, body := as(token, root).get(path, nil)
			if age, err := time.ParseDuration(header.Get("Watershed-Age")); code != http.StatusOK || err != nil ||
				age <= 0 || !strings.Contains(header.Get("Warning"), "stale for") {
				t.Errorf("%s: %d, age %v, %v, %q: %s", root, code, age, err, header.Values("Warning"), body)
			}
			if code, _, body := as(c.UserConfig("eve").BearerToken, root).get(path,
				nil); code != http.StatusServiceUnavailable {
				t.Errorf("another caller at %s: %d %s", root, code, body)
			}
		}
		events := watchNames(t, owner, path+"?watch=true&resourceVersion="+before.ResourceVersion)
		expect.NoError(t, w.network.Up())
		create("after")
		expect.Equal(t, <-events, "after")
		expect.Soon(t, "an answer to another caller", func() bool {
			code, _, _ := as(c.UserConfig("eve").BearerToken, "/clusters/a").get(path, nil)
			return code == http.StatusOK
		})
	})

	refused := func(t *testing.T, owner *pastReader) {
		t.Helper()
		for _, root := range []string{"", "/" + before.Items[0]["metadata"].(map[string]any)["name"].(string)} {
			if code, _, body := owner.get(path+root, nil); code != http.StatusServiceUnavailable {
				t.Errorf("%s: %d %s", root, code, body)
			}
		}
	}
	w.serve(t, "nobody", func(t *testing.T, log *output, as func(token, root string) *pastReader, token string) {
		expect.Soon(t, "the refusal", func() bool { return strings.Contains(log.String(), "cluster refuses access") })
		refused(t, as(token, "/clusters/a"))
	})
	w.network.Down()
	w.serve(t, "eve", func(t *testing.T, log *output, as func(token, root string) *pastReader, token string) {
		expect.Soon(t, "an error", func() bool { return strings.Contains(log.String(), "cluster unreachable") })
		refused(t, as(token, "/clusters/a"))
	})
}

// watchNames starts a watch, and returns the names of the objects in its events.
func watchNames(t *testing.T, from *pastReader, path string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from.root+path, http.NoBody)
	expect.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+from.token)
	response, err := from.client.Do(r)
	expect.NoError(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, response.Status)
	}
	names, ended := make(chan string, 16), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(names)
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			var event struct{ Object metav1.PartialObjectMetadata }
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				names <- event.Object.Name
			}
		}
	}()
	t.Cleanup(func() {
		_ = response.Body.Close()
		<-ended
	})
	return names
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// folderOf returns a folder with a kubeconfig file for an origin.
func folderOf(t *testing.T, name, kubeconfig string) string {
	t.Helper()
	dir := t.TempDir()
	content, err := os.ReadFile(kubeconfig)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), content, 0o600))
	return dir
}

// sources has the cases of the keys about sources of clusters that need no hub.
func (w *keyClusters) sources() map[string]keyCase {
	names := (*configured).names
	return map[string]keyCase{
		"sources.kubeconfig": {from: w.onlyEU, to: w.onlyUS, observe: names, want: [2]string{"eu", "us"}},
		"sources.contexts": {
			with:    map[string]any{"sources.kubeconfig": w.kubeconfig},
			from:    []string{"us"},
			observe: names,
			want:    [2]string{"us", "eu us"},
		},
		"sources.directories": {
			from: []string{folderOf(w.t, "one", w.onlyEU)}, to: []string{folderOf(w.t, "two", w.onlyUS)},
			observe: names, want: [2]string{"one", "two"},
		},
		// There is no service account here.
		"sources.inCluster": {with: w.one(), to: "pod", want: [2]string{"false", "true"},
			observe: func(c *configured) string {
				return fmt.Sprint(strings.Contains(c.log.String(), `source="in-cluster pod"`))
			}},
	}
}

// asked returns whether a cluster has received requests with a text since the first call.
func asked(o *origin, text string) func(*configured) string {
	before := -1
	return func(*configured) string {
		if before < 0 {
			before = o.asked(text)
		}
		return fmt.Sprint(o.asked(text) > before)
	}
}

// hubs has the cases of the keys about a hub. The hub is the cluster us, which serves neither
// Secrets nor profiles: the requests for them are observed.
func (w *keyClusters) hubs() map[string]keyCase {
	yes := [2]string{"false", "true"}
	secrets, profiles := "/api/v1/secrets", "/clusterprofiles?"
	plugins := filepath.Join(w.t.TempDir(), "plugins.json")
	expect.NoError(w.t, os.WriteFile(plugins,
		[]byte(
			`{"providers": [{"name": "files", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}}]}`,
		), 0o600))
	enabled := "sources.clusterProfiles.enabled"
	return map[string]keyCase{
		"sources.clusterAPI": {with: w.one(), from: false, to: true, observe: asked(w.us, secrets), want: yes},
		enabled: {
			with: w.one(), from: false, to: true, also: map[string]any{"sources.clusterProfiles.consumer": "me"},
			observe: asked(w.us, profiles), want: yes,
		},
		"sources.clusterProfiles.consumer": {
			with: w.one(enabled, true, "sources.clusterProfiles.providerFile", plugins), to: "me",
			observe: asked(w.us, "labelSelector=x-k8s.io%2Fcluster-profile"), want: yes,
		},
		"sources.clusterProfiles.providerFile": {
			with: w.one(enabled, true), from: plugins, to: "/nonexistent/plugins.json", want: yes,
			observe: func(c *configured) string {
				return fmt.Sprint(strings.Contains(c.log.String(), "/nonexistent/plugins.json: no such file"))
			},
		},
		"sources.hub.kubeconfig": {
			with:    w.one("sources.clusterAPI", true),
			from:    w.onlyUS,
			to:      w.onlyEU,
			observe: asked(w.eu, secrets),
			want:    yes,
		},
		"sources.hub.context": {
			with: w.one("sources.clusterAPI", true), to: "eu", observe: asked(w.eu, secrets), want: yes,
		},
		"sources.hub.namespace": {
			with: w.one("sources.clusterAPI", true), to: "shop",
			observe: asked(w.us, "/api/v1/namespaces/shop/secrets"), want: yes,
		},
	}
}

// codeOf returns the status code of a request of the owner.
func codeOf(path string) func(*configured) string {
	return func(c *configured) string {
		code, _ := c.get(path, c.owner())
		return fmt.Sprint(code)
	}
}

// mirror has the cases of the keys about what is mirrored.
func (w *keyClusters) mirror() map[string]keyCase {
	scope := func(c *configured) string {
		for _, one := range c.clusters() {
			return one.Scope
		}
		return "no cluster"
	}
	namespace := w.eu.cluster.Pod(0).Namespace
	return map[string]keyCase{
		"mirror.resources": {
			with:    w.one(),
			from:    []string{"pods"},
			to:      []string{"namespaces"},
			observe: codeOf("/clusters/eu/api/v1/namespaces"),
			want:    [2]string{"403", "200"},
		},
		"mirror.except": {
			with:    w.one(),
			to:      []string{"namespaces"},
			observe: codeOf("/clusters/eu/api/v1/namespaces"),
			want:    [2]string{"200", "403"},
		},
		"mirror.namespace": {
			with: w.one(), to: namespace, observe: scope, want: [2]string{"", "namespace " + namespace},
		},
		"mirror.selector": {with: w.one(), to: "a=b", observe: scope, want: [2]string{"", "label selector a=b"}},
		"mirror.facets": {with: w.one(), to: []string{"default"}, want: [2]string{"false", "true"},
			observe: func(c *configured) string {
				_, body := c.get("/metrics", c.owner())
				return fmt.Sprint(strings.Contains(body, `part="facets"`))
			}},
		"mirror.dropManagedFields": {with: w.one(), from: false, to: true, want: [2]string{"true", "false"},
			observe: func(c *configured) string {
				_, body := c.get("/clusters/eu/api/v1/pods?limit=1", c.owner())
				return fmt.Sprint(strings.Contains(body, `"managedFields"`))
			}},
		"authorization.localRBAC": {
			with: w.one(), to: []string{"eu"}, observe: asked(w.eu, "/apis/rbac.authorization.k8s.io/v1/roles"),
			want: [2]string{"false", "true"},
		},
	}
}

// fleet has the cases of the keys about identities below /fleet.
func (w *keyClusters) fleet() map[string]keyCase {
	pods := "/fleet/api/v1/pods"
	both := func(pairs ...any) map[string]any {
		return w.one(append([]any{"sources.contexts", []string{"eu", "us"}, "fleet.home", "eu"}, pairs...)...)
	}
	places := func(c *configured) string { return c.placedIn(pods, "ann,devs") }
	return map[string]keyCase{
		"fleet.home":  {with: w.one(), to: "eu", observe: places, want: [2]string{"401", "eu"}},
		"fleet.users": {with: both(), to: []string{"ann"}, observe: places, want: [2]string{"eu", "eu us"}},
		"fleet.members": {
			with:    both("fleet.users", []string{"ann"}),
			from:    []string{"eu"},
			to:      []string{"u*"},
			observe: places,
			want:    [2]string{"eu", "eu us"},
		},
		"fleet.groups": {run: func(t *testing.T) {
			w.us.group = "devs"
			defer func() { w.us.group = "" }()
			c := keyCase{
				with:    both("fleet.users", []string{"ann"}),
				to:      []string{"devs"},
				observe: places,
				want:    [2]string{"eu", "eu us"},
			}
			c.compare(t, "fleet.groups", true)
		}},
	}
}

// groups has the cases of the keys about replica groups: the requests for Leases.
func (w *keyClusters) groups() map[string]keyCase {
	observe := func(*configured) (last string) {
		for name, o := range map[string]*origin{"eu": w.eu, "us": w.us} {
			o.mu.Lock()
			o.requests = slices.DeleteFunc(o.requests, func(r string) bool {
				_, of, found := strings.Cut(r, "/apis/coordination.k8s.io/v1/namespaces/")
				if found {
					namespace, query, _ := strings.Cut(of, "/leases?labelSelector=watershed.dev%2Freplica-group%3D")
					query, _, _ = strings.Cut(query, "&")
					last = name + " " + namespace + " " + query
				}
				return found
			})
			o.mu.Unlock()
		}
		return last
	}
	with := func(pairs ...any) map[string]any {
		return w.one(append([]any{"sources.contexts", []string{"eu", "us"}, "group.name", "one", "group.cluster",
			"eu"}, pairs...)...)
	}
	return map[string]keyCase{
		"group.name": {
			with: with("group.namespace", "shop"), to: "two", observe: observe,
			want: [2]string{"eu shop one", "eu shop two"},
		},
		"group.cluster": {
			with: with("group.namespace", "shop"), to: "us", observe: observe,
			want: [2]string{"eu shop one", "us shop one"},
		},
		"group.namespace": {with: with(), to: "shop", observe: observe,
			want: [2]string{"eu default one", "eu shop one"}},
		"group.listen": {with: with(), to: "127.0.0.1:0", observe: peerPort, want: [2]string{"none", "as it listens"}},
		"group.address": {with: with("group.listen", ":0"), from: "192.0.2.1:7444", to: "192.0.2.2:7444",
			observe: peerPort, want: [2]string{"192.0.2.1:7444", "192.0.2.2:7444"}},
	}
}

// peerPort returns the address that other replicas get from the server, for one that it listens at.
func peerPort(c *configured) string {
	_, line, found := strings.Cut(c.log.String(), `msg="port for other replicas" listen=`)
	listen, address, _ := strings.Cut(line, " address=")
	address, _, _ = strings.Cut(address, "\n")
	switch {
	case !found:
		return "none"
	case listen == address:
		return "as it listens"
	}
	return address
}

// oidc has the cases of the keys about OpenID Connect. The caller reads its identity.
func (w *keyClusters) oidc() map[string]keyCase {
	i := startIssuer(w.t, w.t.TempDir())
	token := i.sign(w.t, map[string]any{"sub": "ann", "email": "ann@example.com", "teams": []string{"devs"}})
	with := func(without ...string) map[string]any {
		all := w.one("oidc.issuerURL", i.URL, "oidc.clientID", "watershed", "oidc.usernamePrefix", "oidc:",
			"oidc.caFile", i.caFile)
		for _, path := range without {
			delete(all, path)
		}
		return all
	}
	identity := func(c *configured) string {
		code, body := c.send("POST", "/fleet/apis/authentication.k8s.io/v1/selfsubjectreviews", token,
			`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)
		var review struct {
			Status struct {
				UserInfo struct {
					Username string
					Groups   []string
				}
			}
		}
		if code > 299 {
			return fmt.Sprint(code)
		}
		expect.NoError(c.t, json.Unmarshal([]byte(body), &review))
		return fmt.Sprint(review.Status.UserInfo.Username, review.Status.UserInfo.Groups)
	}
	ann := "oidc:ann[system:authenticated]"
	grouped := with()
	grouped["oidc.groupsClaim"] = "teams"
	return map[string]keyCase{
		"oidc.issuerURL": {
			with: w.one(), to: i.URL, observe: identity, want: [2]string{"401", ann},
			also: map[string]any{"oidc.clientID": "watershed", "oidc.usernamePrefix": "oidc:", "oidc.caFile": i.caFile},
		},
		"oidc.clientID": {
			with: with(), from: "watershed", to: "other", observe: identity, want: [2]string{ann, "401"},
		},
		"oidc.usernameClaim": {
			with:    with(),
			to:      "email",
			observe: identity,
			want:    [2]string{ann, "oidc:ann@example.com[system:authenticated]"},
		},
		"oidc.usernamePrefix": {
			with:    with(),
			from:    "oidc:",
			to:      "sso:",
			observe: identity,
			want:    [2]string{ann, "sso:ann[system:authenticated]"},
		},
		"oidc.groupsClaim": {
			with:    with(),
			to:      "teams",
			also:    map[string]any{"oidc.groupsPrefix": "oidc:"},
			observe: identity,
			want:    [2]string{ann, "oidc:ann[oidc:devs system:authenticated]"},
		},
		"oidc.groupsPrefix": {
			with:    grouped,
			from:    "a:",
			to:      "b:",
			observe: identity,
			want:    [2]string{"oidc:ann[a:devs system:authenticated]", "oidc:ann[b:devs system:authenticated]"},
		},
		"oidc.signingAlgs": {with: with(), to: []string{"ES256"}, observe: identity, want: [2]string{ann, "401"}},
		"oidc.caFile": {run: func(t *testing.T) {
			c := configure(t, with())
			expect.Equal(t, identity(c), ann)
			expect.NoError(t, c.stopped())
			other, _, _ := writePair(t)
			bad := with()
			bad["oidc.caFile"] = other[0]
			if got := identity(configure(t, bad)); got == ann {
				t.Error("the issuer is trusted with another authority")
			}
		}},
	}
}

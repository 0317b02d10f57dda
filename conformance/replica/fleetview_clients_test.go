// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

// testFleetKubectl: kubectl prints both clusters, with any page size.
func testFleetKubectl(t *testing.T, p *pair) {
	p.namespace(t, "printed")
	var want []string
	for i, c := range p.clusters {
		for n := range 6 {
			name := fmt.Sprintf("pod-%d", n)
			createPodIn(t, p.clients[i], "printed", name)
			want = append(want, c.Name()+"/"+name)
		}
	}
	k := terminal{p.clusters[0].KubectlPath(), filepath.Join(t.TempDir(), "fleet"), t.TempDir()}
	if err := p.process.WriteKubeconfig(k.kubeconfig); err != nil {
		t.Fatal(err)
	}
	run := func(line string) output {
		return k.run(t.Context(), append(words("--context fleet"), words(line)...)...)
	}
	p.await(t, func(context.Context) error {
		if o := run("get pods -A"); o.code != 0 || !slices.Equal(rowsOf(o.stdout), want) {
			return fmt.Errorf("%d %s\n%s", o.code, o.stderr, o.stdout)
		}
		return nil
	})
	for line, rows := range map[string][]string{
		"get pods -n printed --chunk-size=5": want,
		"get pods -A --chunk-size=5 --sort-by=.metadata.name": {
			"east/pod-0", "west/pod-0", "east/pod-1", "west/pod-1", "east/pod-2", "west/pod-2", "east/pod-3",
			"west/pod-3", "east/pod-4", "west/pod-4", "east/pod-5", "west/pod-5",
		},
		"get pods -A -l app=pod-3":                                 {"east/pod-3", "west/pod-3"},
		"get pods -A -o wide --field-selector=metadata.name=pod-2": {"east/pod-2", "west/pod-2"},
		"get pods -A -l watershed.dev/cluster=west": {
			"west/pod-0", "west/pod-1", "west/pod-2", "west/pod-3", "west/pod-4", "west/pod-5",
		},
		"get pods -A -o wide --chunk-size=1 -l watershed.dev/cluster!=west,app=pod-3": {"east/pod-3"},
		"get pods -n printed --chunk-size=1 -l app!=pod-0": slices.DeleteFunc(slices.Clone(want), func(s string) bool {
			return strings.HasSuffix(s, "-0")
		}),
	} {
		if o := run(line); !slices.Equal(rowsOf(o.stdout), rows) || o.code != 0 {
			t.Errorf("kubectl %s: %d %s\n%s", line, o.code, o.stderr, o.stdout)
		}
	}
	o := run("get pods -n printed -o yaml --chunk-size=5")
	var list corev1.PodList
	if err := yaml.Unmarshal([]byte(o.stdout), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pod := range list.Items {
		got = append(got, pod.Annotations[clusterAnnotation]+"/"+pod.Name)
	}
	if !slices.Equal(got, want) || o.code != 0 {
		t.Errorf("kubectl get -o yaml has %q: %s", got, o.stderr)
	}
	if o := run("get pod pod-1 -n printed"); o.code == 0 || !strings.Contains(o.stderr, "is in several clusters") ||
		!strings.Contains(o.stderr, "east, west") {
		t.Errorf("kubectl get of a name that is in both: %d %s", o.code, o.stderr)
	}
}

func createPodIn(t *testing.T, client *kubernetes.Clientset, namespace, name string) {
	t.Helper()
	// Without controllers, service accounts are not created.
	off := false
	_, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &off,
			Containers:                   []corev1.Container{{Name: "main", Image: "registry.example/" + name}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testFleetInformers: client-go's informers, typed and dynamic, end with the objects of
// both clusters, although the replica is restarted while objects change. No name is in
// both clusters, see the design.
func testFleetInformers(t *testing.T, p *pair) {
	const n = 30
	rng := newRandom(t)
	p.namespace(t, "informed")
	cfg := p.process.Config()
	cfg.Host += "/fleet"
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return keyed{next} })
	var mu sync.Mutex
	address := p.process.Address
	cfg.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, address) // its current address
	}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace("informed"))
	dynamicFactory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, "informed", nil)
	stores := map[string]cache.SharedIndexInformer{
		"typed":   factory.Core().V1().ConfigMaps().Informer(),
		"dynamic": dynamicFactory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer(),
	}
	factory.Start(ctx.Done())
	dynamicFactory.Start(ctx.Done())
	defer factory.Shutdown()
	defer dynamicFactory.Shutdown()
	defer cancel()
	churn := func(times int) {
		t.Helper()
		for range times {
			cluster, i := rng.IntN(2), rng.IntN(n)
			name := p.names[cluster] + "-" + strconv.Itoa(i)
			var err error
			if rng.IntN(3) == 0 {
				err = p.clients[cluster].CoreV1().ConfigMaps("informed").DeleteCollection(ctx, metav1.DeleteOptions{},
					metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			} else {
				err = p.put(ctx, cluster, "informed", name, nil, strconv.Itoa(rng.Int()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	converge := func() {
		t.Helper()
		for name, s := range stores {
			p.await(t, func(ctx context.Context) error {
				want, err := p.truth(ctx, "informed", "")
				if err != nil {
					return err
				}
				var got []string
				for _, o := range s.GetStore().List() {
					m, err := meta.Accessor(o)
					if err != nil {
						return err
					}
					got = append(got, m.GetAnnotations()[clusterAnnotation]+"/"+m.GetNamespace()+"/"+m.GetName()+"@"+
						m.GetResourceVersion())
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					return fmt.Errorf("the %s informer has\n%q, want\n%q", name, got, want)
				}
				return nil
			})
		}
	}
	churn(60)
	converge()
	before := revision(t, p.settled(t, "informed"))
	p.process.Stop()
	churn(40)
	p.start(t)
	mu.Lock()
	address = p.process.Address
	mu.Unlock()
	churn(40)
	converge()
	if now := revision(t, p.settled(t, "informed")); now <= before {
		t.Errorf("the version is %d after a restart, and was %d", now, before)
	}
	p.await410(t, "/api/v1/namespaces/informed/configmaps", before)
}

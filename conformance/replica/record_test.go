// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/go-logr/logr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// recordVariable makes TestRecord write a new corpus. It needs the kubectls of
// kubectlVersions (make kube VERSION=…).
const recordVariable = "WATERSHED_RECORD"

// kubectlVersions are the kubectls that are recorded.
var kubectlVersions = []string{"v1.31.0", "v1.33.13", "v1.37.1"}

// recorder passes requests on to a server and records those that read.
type recorder struct {
	cluster *comparedCluster
	http    *httptest.Server

	mu       sync.Mutex
	from     string
	requests []request
}

func newRecorder(t *testing.T, w *comparedCluster) *recorder {
	t.Helper()
	target, err := url.Parse(w.server.root)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{cluster: w}
	proxy := &httputil.ReverseProxy{
		Transport:     w.server.client.Transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set("Authorization", "Bearer "+w.server.token)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {},
	}
	r.http = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		r.note(req)
		proxy.ServeHTTP(rw, req)
	}))
	t.Cleanup(func() {
		r.http.CloseClientConnections()
		r.http.Close()
	})
	return r
}

// as sets the client that sends the next requests.
func (r *recorder) as(client string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = client
}

func (r *recorder) note(req *http.Request) {
	if req.Method != http.MethodGet {
		return
	}
	uri, ok := r.generalize(req.URL.RequestURI())
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request{
		Method: req.Method, URI: uri, Accept: req.Header.Get("Accept"), Encoding: req.Header.Get("Accept-Encoding"),
		From: []string{r.from},
	})
}

var (
	versionParameter = regexp.MustCompile(`\bresourceVersion=[1-9]\d*`)
	timeoutParameter = regexp.MustCompile(`\btimeoutSeconds=\d+`)
	minutesParameter = regexp.MustCompile(`\btimeout=\d+m\d+s`)
	fieldParameter   = regexp.MustCompile(`\bfieldSelector=[^&]+`)
	hashParameter    = regexp.MustCompile(`^/openapi/v3/([^?]*)\?hash=\w+`)
	uidPattern       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// A pod's name ends in a random suffix unless its controller numbers it. The name of
	// a replica set ends in a hash of its template, which depends on the server's
	// version.
	randomName = regexp.MustCompile(`(/|%3D)((agent|elder|migrate)-[0-9a-z]{5}|web-[0-9a-z]{8,10}(-[0-9a-z]{5})?)\b`)
)

// generalize replaces the parts of a URI that are valid only for this cluster by
// placeholders. It returns false for a URI that has no meaning in another cluster.
func (r *recorder) generalize(uri string) (string, bool) {
	if strings.Contains(uri, "continue=") || randomName.MatchString(uri) {
		return "", false
	}
	uri = versionParameter.ReplaceAllString(uri, "resourceVersion=$${rv}")
	// Random timeouts of minutes are too long to compare.
	uri = timeoutParameter.ReplaceAllString(uri, "timeoutSeconds=1")
	uri = minutesParameter.ReplaceAllString(uri, "timeout=5m0s")
	uri = hashParameter.ReplaceAllString(uri, "/openapi/v3/$1?hash=$${hash:$1}")
	// Clients write these parameters in the order of a map.
	uri = fieldParameter.ReplaceAllStringFunc(uri, func(p string) string {
		name, value, _ := strings.Cut(p, "=")
		parts := strings.Split(value, "%2C")
		slices.Sort(parts)
		return name + "=" + strings.Join(parts, "%2C")
	})
	known := true
	uri = uidPattern.ReplaceAllStringFunc(uri, func(uid string) string {
		for _, key := range slices.Sorted(maps.Keys(r.cluster.uids)) {
			name := key[strings.LastIndex(key, "/")+1:]
			if r.cluster.uids[key] == uid && strings.HasPrefix(key, "uid:") && !randomName.MatchString("/"+name) {
				return "${" + key + "}"
			}
		}
		known = false
		return uid
	})
	if strings.Contains(uri, "watch=") && !strings.Contains(uri, "timeoutSeconds=") {
		uri += "&timeoutSeconds=1"
	}
	return uri, known
}

func TestRecord(t *testing.T) {
	if os.Getenv(recordVariable) == "" {
		t.Skip("the corpus is recorded already: set " + recordVariable + " to do it again")
	}
	w := theComparedCluster(t)
	r := newRecorder(t, w)
	r.kubectls(t)
	cfg := &rest.Config{Host: r.http.URL, QPS: -1}
	r.as("client-go 0.37")
	recordClientGo(t, cfg)
	r.as("controller-runtime 0.25")
	recordControllerRuntime(t, cfg)
	if err := writeCorpus(r.requests); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests", len(r.requests))
}

func (r *recorder) kubectls(t *testing.T) {
	t.Helper()
	dir, err := binaries.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: r.http.URL}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	k.CurrentContext = "c"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, version := range kubectlVersions {
		path := filepath.Join(dir, "kubernetes", version, "kubectl")
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		r.as("kubectl " + strings.TrimPrefix(version, "v"))
		cache := t.TempDir()
		for _, args := range append(commandLines(), words("get pods -n shop -w"), words("get wd -A -w -o yaml"),
			words("get pod db-0 -n shop -w --output-watch-events")) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if slices.Contains(args, "-w") {
				ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
			}
			cmd := exec.CommandContext(ctx, path, args...)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+cache)
			// Many commands fail, as they should. Only their requests matter.
			_ = cmd.Run()
			cancel()
		}
	}
}

// recordClientGo uses all clients of client-go.
func recordClientGo(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	typed := kubernetes.NewForConfigOrDie(cfg)
	proto := rest.CopyConfig(cfg)
	proto.ContentType, proto.AcceptContentTypes = protobufAccept, protobufAccept+",application/json"
	for _, c := range []*kubernetes.Clientset{typed, kubernetes.NewForConfigOrDie(proto)} {
		_, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
		must(err)
		_, err = c.CoreV1().Pods("").List(ctx, metav1.ListOptions{
			LabelSelector: "app=web", FieldSelector: "status.phase=Running", Limit: 2,
		})
		must(err)
		_, err = c.CoreV1().ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{})
		must(err)
		_, err = c.CoreV1().ConfigMaps("shop").Get(ctx, "settings", metav1.GetOptions{ResourceVersion: "0"})
		must(err)
		_, err = c.AppsV1().Deployments("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		must(err)
		_, err = c.CoreV1().Nodes().List(ctx, metav1.ListOptions{
			ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		must(err)
		_, err = c.AppsV1().StatefulSets("shop").GetScale(ctx, "db", metav1.GetOptions{})
		must(err)
		wait := int64(1)
		watching, err := c.CoreV1().Secrets("shop").Watch(ctx,
			metav1.ListOptions{TimeoutSeconds: &wait, AllowWatchBookmarks: true})
		must(err)
		if err == nil {
			watching.Stop()
		}
	}
	_, _, err := typed.Discovery().ServerGroupsAndResources()
	must(err)
	_, err = typed.Discovery().ServerPreferredResources()
	must(err)
	_, err = typed.Discovery().OpenAPISchema()
	must(err)
	dyn := dynamic.NewForConfigOrDie(cfg)
	meta := metadata.NewForConfigOrDie(cfg)
	resources := []schema.GroupVersionResource{
		widgetResource, planetResource, corev1.SchemeGroupVersion.WithResource("pods"),
		appsv1.SchemeGroupVersion.WithResource("deployments"),
	}
	for _, r := range resources {
		_, err := dyn.Resource(r).List(ctx, metav1.ListOptions{Limit: 500})
		must(err)
		_, err = meta.Resource(r).List(ctx, metav1.ListOptions{Limit: 500})
		must(err)
	}
	_, err = meta.Resource(widgetResource).Namespace("shop").Get(ctx, "one", metav1.GetOptions{})
	must(err)
	_, err = dyn.Resource(widgetResource).Namespace("shop").Get(ctx, "one", metav1.GetOptions{})
	must(err)

	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactory(typed, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Core().V1().Secrets().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	binary := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(proto), 0,
		informers.WithNamespace("shop"))
	binary.Core().V1().Pods().Informer()
	binary.Core().V1().ConfigMaps().Informer()
	dynamics := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0)
	metas := metadatainformer.NewSharedInformerFactory(meta, 0)
	for _, r := range resources {
		dynamics.ForResource(r)
		metas.ForResource(r)
	}
	for _, f := range []interface {
		Start(<-chan struct{})
		Shutdown()
	}{factory, binary, dynamics, metas} {
		f.Start(stop.Done())
		defer f.Shutdown()
	}
	factory.WaitForCacheSync(stop.Done())
	binary.WaitForCacheSync(stop.Done())
	dynamics.WaitForCacheSync(stop.Done())
	metas.WaitForCacheSync(stop.Done())
	// The watches that follow the lists are recorded in this time.
	time.Sleep(2 * time.Second)
	cancel()
}

// recordControllerRuntime uses its client and its cache.
func recordControllerRuntime(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	direct, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ctrlcache.New(cfg, ctrlcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	widgets := &unstructured.UnstructuredList{}
	widgets.SetGroupVersionKind(widgetResource.GroupVersion().WithKind("WidgetList"))
	partial := &metav1.PartialObjectMetadataList{}
	partial.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSetList"))
	for _, reader := range []client.Reader{direct, c} {
		for _, list := range []client.ObjectList{
			&corev1.PodList{},
			&corev1.ServiceList{},
			&appsv1.DeploymentList{},
			widgets.DeepCopy(),
			partial.DeepCopy(),
		} {
			for _, opts := range [][]client.ListOption{
				nil,
				{client.InNamespace("shop"), client.MatchingLabels{"app": "web"}},
			} {
				if err := reader.List(ctx, list, opts...); err != nil {
					t.Error(err)
				}
			}
		}
		for _, obj := range []client.Object{&corev1.ConfigMap{}} {
			if err := reader.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "settings"}, obj); err != nil {
				t.Error(fmt.Errorf("get: %w", err))
			}
		}
	}
	// The watches that follow the lists are recorded in this time.
	time.Sleep(2 * time.Second)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

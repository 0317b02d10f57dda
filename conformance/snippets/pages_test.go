// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package snippets_test

// reader reads pages one after the other on one machine: later pages find the clusters and files of the
// earlier ones. Each page has a terminal of its own; what keeps running ends with its page.
type reader struct {
	name string
	// clusters is how many clusters the reader creates.
	clusters int
	// helm is set if the reader installs the chart.
	helm  bool
	pages []page
}

// page is a page whose snippets are run.
type page struct {
	path string
	// prepare are commands that its reader has run before, because the page says so, in the form of a
	// snippet.
	prepare string
	// only and not are the beginnings of snippets. Default: all snippets are run. A page can be read
	// more than once, with other snippets.
	only, not []string
	// instead replaces commands that take minutes, by their beginnings.
	instead map[string]string
}

// builtProgram is the program of the quick start.
const builtProgram = `$ go build -C "$CHECKOUT" -o "$PWD/bin/watershed" ./cmd/watershed` + "\n"

// ownModule is the reader's own module, with the change that the page describes.
func ownModule(imported string) string {
	return "$ mkdir own && cd own && go mod init example.com/own && echo 'package own; import _ \"" + imported +
		"\"' > own.go"
}

// image builds the archive of make image in seconds: with one platform, for which the compiled packages
// are in Go's cache, and without ko and crane, which take minutes to build on a new machine. The image
// has the same name, the same path of the program and the same user.
const image = `mkdir -p dist/oci/root/ko-app dist/oci/root/tmp && (
	go build -C cmd/watershed -o "$PWD/dist/oci/root/ko-app/watershed" . && cd dist/oci && chmod 1777 root/tmp
	version=$(awk '$1 == "appVersion:" { gsub("\"", "", $2); print $2 }' ../../deploy/helm/watershed/Chart.yaml)
	tar -C root -cf layer.tar .
	echo '{"config": {"Entrypoint": ["/ko-app/watershed"], "User": "65532:65532"}}' > config.json
	printf '[{"Config": "config.json", "RepoTags": ["watershed-project/watershed:%s"], "Layers": ["layer.tar"]}]' \
		"$version" > manifest.json
	tar -cf watershed.tar manifest.json config.json layer.tar
)`

// certificate makes the certificate of the page for a team, which is its own authority.
const certificate = `$ go run "$(go env GOROOT)/src/crypto/tls/generate_cert.go" --ca --host watershed.watershed.svc 2> log
$ mv cert.pem tls.crt && mv key.pem tls.key && cp tls.crt ca.crt
`

const clone = "$ git clone -q https://github.com/watershed-project/watershed && cd watershed\n"

// The reader of the pages about operations names the clusters of the quick start as these pages do.
const (
	renamed = "$ kubectl config rename-context kind-one prod-eu && kubectl config rename-context kind-two prod-us\n"
	program = "$ cd watershed && PATH=$PWD/bin:$PATH\n"
	serving = program + "$ watershed serve    # keep it running\n…\n… msg=\"first sync done\" …\n"
	merged  = "$ watershed kubeconfig --write replica.yaml\n" +
		"$ cp ~/.kube/config own.yaml && watershed kubeconfig --merge --write ~/.kube/config\n"
	restored = "$ cp watershed/own.yaml ~/.kube/config\n"
	shop     = "$ for c in prod-eu prod-us; do kubectl --context $c create namespace shop && " +
		"kubectl --context $c -n shop create configmap settings --from-literal color=blue; done\n"
	storing = program + "$ watershed serve --data-dir data    # keep it running\n…\n… msg=\"first sync done\" …\n"
	cart    = "$ watershed kubeconfig --write replica.yaml\n" +
		"$ kubectl --context prod-eu -n shop create deployment cart --image shop/cart:1.4\n" +
		"$ kubectl --kubeconfig replica.yaml --context watershed-prod-eu -n shop get deployment cart\n" +
		"$ kubectl --context prod-eu -n shop set image deployment/cart cart=shop/cart:1.5\n"
)

// dataDir replaces a directory that only root may create.
var dataDir = map[string]string{
	"watershed serve --data-dir /var/lib/watershed": "watershed serve --data-dir data",
	"watershed disk --data-dir /var/lib/watershed":  "watershed disk --data-dir data",
}

var readers = []reader{
	{name: "quick start", clusters: 2, pages: []page{
		{path: "README.md"},
		{path: "docs/guides/informers.md"},
		{path: "docs/guides/clusterpedia.md", prepare: "$ cd watershed", not: []string{"mkdir members"}},
		{
			path:    "docs/start/operator.md",
			prepare: "$ mkdir operator && cd operator\n" + ownModule("github.com/watershed-project/watershed/compat"),
		},
		{path: "docs/operations/status.md", prepare: program + renamed, only: []string{"watershed check"}},
		{
			path: "docs/operations/status.md", prepare: serving + merged + "$ mkdir -p ~/bin && PATH=~/bin:$PATH\n",
			not: []string{"watershed check"},
		},
		{path: "docs/reference/http.md", prepare: restored + serving},
		{path: "docs/operations/verify.md", prepare: serving},
		{
			path: "docs/operations/troubleshooting.md", prepare: serving + shop,
			only: []string{
				"kubectl --context prod-eu auth", "watershed status", "kubectl --context prod-eu api-resources",
				"kubectl --kubeconfig replica.yaml",
			},
		},
		{path: "docs/operations/troubleshooting.md", prepare: program, only: []string{"watershed serve --resources"}},
		{
			path: "docs/operations/troubleshooting.md", prepare: program,
			only: []string{"watershed serve --pass-through"},
		},
		{path: "docs/operations/troubleshooting.md", prepare: program, only: []string{"watershed serve --drop"}},
		{path: "docs/operations/storage.md", prepare: program, only: []string{"watershed serve"}, instead: dataDir},
		{
			path: "docs/operations/storage.md", prepare: storing + cart,
			not: []string{"watershed serve", "watershed disk"},
		},
		{path: "docs/operations/storage.md", prepare: program, only: []string{"watershed disk"}, instead: dataDir},
		{
			path: "docs/operations/troubleshooting.md", prepare: program, only: []string{"watershed disk"},
			instead: dataDir,
		},
	}},
	{name: "team", clusters: 1, pages: []page{
		{path: "docs/start/replica.md", prepare: builtProgram},
	}},
	{name: "install", clusters: 2, helm: true, pages: []page{
		{
			path: "docs/operations/install.md", prepare: clone + builtProgram + certificate,
			not: []string{
				"watershed serve", "crane push", "kubectl apply -k", "helm uninstall", "kubectl delete -k",
			},
			instead: map[string]string{"make image": image},
		},
		{
			path: "docs/operations/troubleshooting.md",
			only: []string{"kubectl -n watershed patch", "kubectl -n watershed describe"},
		},
		{path: "docs/operations/upgrade.md", only: []string{"helm history"}},
		{path: "docs/operations/install.md", only: []string{"helm uninstall"}},
		{
			path: "docs/operations/install.md", prepare: "$ cd watershed && kubectl create namespace watershed",
			only: []string{"kubectl apply -k", "kubectl delete -k"},
		},
		{path: "deploy/helm/watershed/README.md", prepare: "$ cd watershed"},
	}},
	{name: "tour", clusters: 1, pages: []page{
		{path: "examples/README.md", prepare: clone},
	}},
	{name: "library", pages: []page{
		{path: "docs/start/library.md", prepare: ownModule("github.com/watershed-project/watershed/fleet")},
	}},
}

// leftOut is a snippet by the beginning of its first command, or all snippets of a page that are not run.
type leftOut struct{ path, command string }

// left are the snippets that are not run, each with the reason.
var left = map[leftOut]string{
	{"README.zh-CN.md", ""}:                  "a translation: its code blocks are compared with those of README.md",
	{"examples/README.zh-CN.md", ""}:         "a translation: its code blocks are compared with those of README.md",
	{"docs/start/operator.zh-CN.md", ""}:     "a translation: its code blocks are compared with those of operator.md",
	{"docs/start/replica.zh-CN.md", ""}:      "a translation: its code blocks are compared with those of replica.md",
	{"docs/start/library.zh-CN.md", ""}:      "a translation: its code blocks are compared with those of library.md",
	{"docs/operations/install.zh-CN.md", ""}: "a translation: its code blocks are compared with those of install.md",
	{"docs/ecosystem.md", ""}:                "needs other programs, which make ecosystem runs",
	{"docs/operations/troubleshooting.md", "watershed kubeconfig --server"}: "names a server of the reader; " +
		"docs/start/replica.md runs the command with a server of the test",
	{"docs/operations/upgrade.md", "watershed version"}: "needs two builds, the old and the new program",
	{"docs/operations/upgrade.md", "cp -a"}:             "needs a directory that only root may create",
	{"docs/operations/upgrade.md", "watershed status"}:  "needs two builds, the old and the new program",
	{"docs/operations/install.md", "watershed serve"}:   "needs an OpenID Connect issuer",
	{"docs/operations/install.md", "crane push"}:        "needs a registry",

	{"docs/guides/clusterpedia.md", "mkdir members"}: "needs Clusterpedia",
	{"docs/contributing/release.md", ""}:             "publishes a release",
	{"CONTRIBUTING.md", ""}:                          "runs all tests, which this test is one of",
}

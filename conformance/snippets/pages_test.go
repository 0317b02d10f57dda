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

var readers = []reader{
	{name: "quick start", clusters: 2, pages: []page{
		{path: "README.md"},
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
		{path: "docs/operations/install.md", only: []string{"helm uninstall"}},
		{
			path: "docs/operations/install.md", prepare: "$ cd watershed && kubectl create namespace watershed",
			only: []string{"kubectl apply -k", "kubectl delete -k"},
		},
		{path: "deploy/helm/watershed/README.md", prepare: "$ cd watershed"},
	}},
	{name: "operator", pages: []page{
		{path: "docs/start/operator.md", prepare: ownModule("github.com/watershed-project/watershed/compat")},
	}},
	{name: "library", pages: []page{
		{path: "docs/start/library.md", prepare: ownModule("github.com/watershed-project/watershed/fleet")},
	}},
}

// leftOut is a snippet by the beginning of its first command, or all snippets of a page that are not run.
type leftOut struct{ path, command string }

// left are the snippets that are not run, each with the reason.
var left = map[leftOut]string{
	{"README.zh-CN.md", ""}:                           "a translation: its code blocks are compared with those of README.md",
	{"docs/ecosystem.md", ""}:                         "needs other programs, which make ecosystem runs",
	{"docs/operations/status.md", ""}:                 "names clusters of the reader",
	{"docs/operations/troubleshooting.md", ""}:        "each snippet belongs to a failure",
	{"docs/operations/upgrade.md", ""}:                "names clusters of the reader",
	{"docs/reference/http.md", ""}:                    "names clusters of the reader",
	{"docs/operations/install.md", "watershed serve"}: "needs an OpenID Connect issuer",
	{"docs/operations/install.md", "crane push"}:      "needs a registry",
}

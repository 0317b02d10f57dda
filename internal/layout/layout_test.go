// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"bytes"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watershed-project/watershed/internal/layout"
)

const (
	root   = "../.."
	module = "github.com/watershed-project/watershed"
	header = "// SPDX-License-Identifier: Apache-2.0\n// Copyright The Watershed Authors\n"
)

// rule says what a package's own code (not its tests) may import besides the
// standard library. Data flows down this table; imports go up it only.
type rule struct {
	// own are packages of this module.
	own []string
	// others are path prefixes of other modules.
	others []string
}

var rules = map[string]rule{
	"delta":              {},
	"store":              {own: []string{"delta"}, others: []string{"github.com/tidwall/btree"}},
	"fanout":             {own: []string{"store", "delta"}},
	"internal/protobuf":  {},
	"internal/transcode": {own: []string{"internal/protobuf"}, others: []string{"k8s.io/apimachinery/"}},
	"internal/buffer":    {},
	"internal/pack": {own: []string{"internal/buffer"}, others: []string{
		"github.com/klauspost/compress/", "k8s.io/apimachinery/",
	}},
	"internal/scan": {own: []string{"internal/protobuf", "internal/transcode"}, others: []string{
		"github.com/go-json-experiment/json/jsontext",
	}},
	"wire/internal/protodecode": {own: []string{"internal/buffer", "internal/protobuf"}},
	"wire/internal/jsondecode": {own: []string{"internal/scan"}, others: []string{
		"github.com/go-json-experiment/json/jsontext", "k8s.io/apimachinery/",
	}},
	"wire": {
		own: []string{
			"internal/buffer", "internal/pack", "internal/protobuf", "internal/transcode",
			"internal/scan", "internal/views", "wire/internal/jsondecode", "wire/internal/protodecode",
		},
		others: []string{"github.com/go-json-experiment/json/jsontext", "k8s.io/apimachinery/"},
	},
	"internal/objectpack": {own: []string{"internal/buffer", "internal/pack", "internal/scan", "wire"}},
	"internal/views":      {},
	"internal/facets": {own: []string{
		"internal/protobuf", "internal/scan", "internal/transcode", "internal/views", "wire",
	}, others: []string{"k8s.io/apimachinery/"}},
	"internal/valuecache": {own: []string{"internal/views", "wire"}, others: []string{"k8s.io/apimachinery/"}},
	"internal/stream": {
		own:    []string{"internal/buffer", "internal/protobuf", "internal/scan", "wire"},
		others: []string{"github.com/go-json-experiment/json/jsontext", "k8s.io/apimachinery/"},
	},
	"internal/storage/keyindex": {},
	"internal/storage/format": {own: []string{
		"delta", "store", "wire", "internal/objectpack", "internal/pack", "internal/storage/keyindex",
	}},
	"internal/storage/reader": {own: []string{
		"delta", "wire", "internal/storage/keyindex", "internal/storage/format",
	}},
	"internal/storage": {own: []string{
		"delta", "store", "wire", "internal/objectpack", "internal/pack", "internal/timer",
		"internal/storage/keyindex", "internal/storage/format", "internal/storage/reader",
	}},
	"disk":               {own: []string{"internal/storage", "internal/storage/format"}},
	"internal/timer":     {},
	"internal/histogram": {},
	"internal/expect":    {own: []string{"internal/timer"}, others: []string{"github.com/google/go-cmp/cmp"}},
	"reflector":          {own: []string{"delta", "internal/timer"}},
	"internal/listwatch": {
		own:    []string{"delta", "reflector", "wire", "internal/stream"},
		others: []string{"k8s.io/apimachinery/"},
	},
	"kube": {own: []string{
		"internal/listwatch", "internal/stream", "internal/timer", "reflector", "wire",
	}, others: []string{
		"github.com/klauspost/compress/gzip", "k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"internal/catchup":     {own: []string{"delta", "store", "fanout"}},
	"internal/undecodable": {own: []string{"delta", "wire"}},
	"internal/engine": {own: []string{
		"delta", "store", "fanout", "reflector", "wire", "kube",
		"internal/catchup", "internal/facets", "internal/histogram", "internal/objectpack", "internal/storage",
		"internal/storage/reader", "internal/timer", "internal/valuecache",
	}, others: []string{"k8s.io/apimachinery/"}},
	".": {own: []string{
		"delta", "store", "fanout", "reflector", "wire", "kube", "disk", "internal/engine", "internal/histogram",
		"internal/timer",
		"internal/undecodable", "internal/valuecache",
	}, others: []string{"k8s.io/apimachinery/"}},
	"compat": {own: []string{
		"delta", "reflector", "wire", "kube", "disk", "internal/engine", "internal/listwatch", "internal/storage",
		"internal/objectpack", "internal/timer", ".",
	}, others: []string{
		"github.com/go-logr/logr", "k8s.io/apimachinery/", "k8s.io/client-go/", "k8s.io/klog/v2",
	}},

	"internal/objectlog": {own: []string{"delta", "store", "fanout", "wire", "internal/timer"}},
	"internal/admission": {own: []string{"internal/timer"}},
	"internal/history": {own: []string{
		"delta", "store", "fanout", "reflector", "wire", "kube", "internal/storage", ".",
		"internal/objectlog", "internal/timer", "internal/admission",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/collection": {own: []string{
		"delta", "store", "fanout", "wire", ".", "internal/catchup", "internal/objectlog",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/quota":     {own: []string{"delta", "reflector", "wire", ".", "internal/timer"}},
	"fleet/internal/selection": {own: []string{"kube"}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/upstream": {own: []string{
		"delta", "reflector", "wire", "kube", "internal/storage", "internal/engine", ".", "internal/timer",
		"internal/admission", "fleet/internal/quota", "fleet/internal/selection",
	}, others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"}},
	"fleet/internal/verify": {own: []string{
		"reflector", "wire", "kube", "internal/admission", "internal/timer", "fleet/internal/collection",
		"fleet/internal/quota",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/health": {own: []string{
		"reflector", "kube", ".", "internal/warning",
		"fleet/internal/quota", "fleet/internal/selection", "fleet/internal/upstream", "fleet/internal/verify",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/journal": {own: []string{
		"reflector", "internal/timer", "fleet/internal/health",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet/internal/laststate": {own: []string{"kube", "internal/storage", "fleet/internal/health"}},
	"fleet/internal/mirror": {own: []string{
		"store", "fanout", "wire", "kube", "internal/storage", "internal/engine", ".", "internal/timer",
		"internal/facets", "internal/history",
		"internal/admission", "fleet/internal/collection", "fleet/internal/health", "fleet/internal/quota",
		"fleet/internal/selection", "fleet/internal/upstream", "fleet/internal/verify", "internal/objectpack",
	}, others: []string{"k8s.io/apimachinery/"}},
	"fleet": {own: []string{
		"delta", "fanout", "reflector", "wire", "kube", "disk", "internal/storage", ".",
		"internal/objectlog", "internal/timer", "internal/undecodable",
		"internal/history", "internal/admission", "fleet/internal/collection", "fleet/internal/health",
		"fleet/internal/journal",
		"fleet/internal/laststate", "fleet/internal/mirror", "fleet/internal/quota", "fleet/internal/selection",
		"fleet/internal/upstream", "fleet/internal/verify", "internal/facets", "internal/valuecache",
	}, others: []string{"k8s.io/apimachinery/", "k8s.io/client-go/"}},
	"fleet/directory": {own: []string{"reflector", "kube", ".", "fleet", "internal/timer"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},

	"internal/warning":   {others: []string{"k8s.io/apimachinery/"}},
	"internal/jsondiff":  {},
	"internal/document":  {own: []string{"fleet", "internal/jsondiff"}},
	"internal/freshness": {own: []string{"reflector", "internal/warning"}},

	"query": {
		own:    []string{"reflector", ".", "wire", "fleet", "internal/freshness", "internal/undecodable"},
		others: []string{"k8s.io/apimachinery/"},
	},

	"internal/table":          {others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"}},
	"internal/fields":         {others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"}},
	"replica/internal/status": {others: []string{"k8s.io/apimachinery/"}},
	"replica/internal/encode": {own: []string{"wire", "internal/stream"}, others: []string{
		"github.com/klauspost/compress/", "k8s.io/api/", "k8s.io/apimachinery/",
	}},
	"replica/internal/view": {
		own: []string{
			"delta", "store", "fanout", "reflector", "wire", "kube", "fleet", "internal/history", "internal/objectlog",
			"internal/fields", "internal/stream", "internal/table", "internal/valuecache", "internal/warning",
			"replica/internal/status", "replica/internal/encode",
		},
		others: []string{"k8s.io/apimachinery/"},
	},
	"replica/internal/respond": {
		own:    []string{"internal/warning", "replica/internal/status", "replica/internal/encode"},
		others: []string{"github.com/munnerz/goautoneg", "k8s.io/apimachinery/", "sigs.k8s.io/yaml"},
	},
	"replica/internal/discovery": {
		own:    []string{"kube", "replica/internal/status", "replica/internal/encode", "replica/internal/respond"},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/"},
	},
	"replica/internal/openapi": {
		own:    []string{"kube", "replica/internal/status", "replica/internal/respond"},
		others: []string{"k8s.io/apimachinery/"},
	},
	"replica/internal/audience": {
		own:    []string{"fleet", "replica/internal/view"},
		others: []string{"k8s.io/apimachinery/"},
	},
	"replica/internal/past": {
		own: []string{
			"wire", "fleet", "internal/history", "internal/document", "internal/freshness", "internal/jsondiff",
			"internal/warning", "replica/internal/encode", "replica/internal/view", "replica/internal/respond",
		},
		others: []string{"k8s.io/apimachinery/"},
	},
	"replica/internal/requestmetrics": {own: []string{"internal/histogram"}},
	"replica/internal/passthrough": {
		own: []string{
			"wire", "kube", "fleet", "internal/history", "internal/warning",
			"replica/internal/status", "replica/internal/encode", "replica/internal/view", "replica/internal/respond",
		},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/"},
	},
	"replica/internal/read": {
		own: []string{
			"fanout", "wire", "kube", "internal/stream", "internal/table", "internal/warning",
			"replica/internal/status", "replica/internal/encode", "replica/internal/view", "replica/internal/respond",
		},
		others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "sigs.k8s.io/yaml"},
	},
	"replica": {
		own: []string{
			"kube", "fleet", "internal/history", "internal/document", "internal/freshness", "internal/histogram",
			"internal/warning", "replica/internal/status", "replica/internal/encode", "replica/internal/view",
			"replica/internal/respond", "replica/internal/discovery", "replica/internal/openapi",
			"replica/internal/audience",
			"replica/internal/passthrough", "replica/internal/past", "replica/internal/requestmetrics",
			"replica/internal/read",
		},
		others: []string{"k8s.io/apimachinery/"},
	},
	"cmd/watershed/internal/bounded":  {},
	"cmd/watershed/internal/defaults": {},
	"cmd/watershed/internal/lru":      {},
	"cmd/watershed/internal/authn": {own: []string{
		"kube", "internal/timer", "cmd/watershed/internal/bounded", "cmd/watershed/internal/defaults",
		"cmd/watershed/internal/lru",
	}, others: []string{
		"github.com/coreos/go-oidc/v3/oidc", "github.com/go-jose/go-jose/v4", "k8s.io/api/", "k8s.io/apimachinery/",
		"k8s.io/client-go/",
	}},
	"cmd/watershed/internal/rbac": {own: []string{"replica"}, others: []string{"k8s.io/api/"}},
	"cmd/watershed/internal/authz": {own: []string{
		"kube", "replica", "cmd/watershed/internal/bounded", "cmd/watershed/internal/lru",
		"cmd/watershed/internal/rbac",
	}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"cmd/watershed/internal/expression": {own: []string{"wire", "cmd/watershed/internal/lru"}, others: []string{
		"github.com/google/cel-go/", "k8s.io/apimachinery/", "k8s.io/apiserver/pkg/cel/library",
	}},
	"cmd/watershed/internal/statefile": {},
	"cmd/watershed/internal/budget":    {own: []string{"fleet", "internal/timer"}},
	"cmd/watershed/internal/kms": {
		others: []string{"github.com/google/uuid", "google.golang.org/grpc", "k8s.io/kms/"},
	},
	"cmd/watershed/internal/kms/vault": {others: []string{"k8s.io/kms/"}},
	"cmd/watershed/internal/config": {
		own:    []string{"internal/timer", "cmd/watershed/internal/usage"},
		others: []string{"github.com/spf13/pflag", "go.yaml.in/yaml/v3", "k8s.io/apimachinery/"},
	},
	"cmd/watershed/internal/serving": {
		own: []string{"internal/timer", "cmd/watershed/internal/defaults", "cmd/watershed/internal/statefile"},
	},
	"cmd/watershed/internal/overload": {
		own:    []string{"cmd/watershed/internal/defaults"},
		others: []string{"k8s.io/apimachinery/"},
	},
	"cmd/watershed/internal/terminal": {others: []string{"golang.org/x/term"}},
	"cmd/watershed/internal/group": {own: []string{
		"fleet", "internal/document", "internal/timer", "internal/warning", "kube",
	}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"cmd/watershed/internal/peer":   {own: []string{"internal/timer", "cmd/watershed/internal/group"}},
	"cmd/watershed/internal/remedy": {own: []string{"fleet"}},
	"cmd/watershed/internal/status": {
		own: []string{
			"fleet", "internal/document", "cmd/watershed/internal/remedy", "cmd/watershed/internal/terminal",
		},
		others: []string{"k8s.io/apimachinery/"},
	},
	"cmd/watershed/internal/progress": {own: []string{"fleet", "internal/timer", "cmd/watershed/internal/terminal"}},
	"cmd/watershed/internal/preflight": {own: []string{"kube", "fleet", "cmd/watershed/internal/remedy"},
		others: []string{
			"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
		}},
	"cmd/watershed/internal/access": {own: []string{
		".", "wire", "kube", "fleet", "replica", "cmd/watershed/internal/authn", "cmd/watershed/internal/authz",
		"cmd/watershed/internal/rbac", "internal/history", "internal/timer",
		"cmd/watershed/internal/defaults",
	}, others: []string{"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/"}},
	"cmd/watershed/internal/audit": {own: []string{
		"replica", "cmd/watershed/internal/access", "cmd/watershed/internal/defaults",
	}, others: []string{
		"github.com/google/uuid", "k8s.io/api/", "k8s.io/apimachinery/",
	}},
	"cmd/watershed/internal/exposition": {own: []string{
		"disk", "fleet", "replica", "metrics", "metrics/serving", "cmd/watershed/internal/access",
		"cmd/watershed/internal/audit", "cmd/watershed/internal/budget", "cmd/watershed/internal/group",
		"cmd/watershed/internal/overload", "cmd/watershed/internal/peer", "cmd/watershed/internal/tracing",
		"cmd/watershed/internal/verification",
	}, others: []string{"github.com/prometheus/client_golang/prometheus"}},
	"cmd/watershed/internal/tracing": {own: []string{
		"replica", "cmd/watershed/internal/access", "internal/timer",
	}, others: []string{
		"go.opentelemetry.io/otel", "golang.org/x/time/rate", "k8s.io/apimachinery/",
	}},
	"cmd/watershed/internal/verification": {
		own: []string{
			"fleet", "replica", "wire", "internal/admission", "internal/history", "internal/timer",
			"cmd/watershed/internal/peer",
		},
		others: []string{"k8s.io/apimachinery/"},
	},

	"metrics": {
		own:    []string{".", "reflector", "fleet", "internal/histogram"},
		others: []string{"github.com/prometheus/client_golang/prometheus", "k8s.io/apimachinery/"},
	},
	"metrics/clientgo": {
		others: []string{"github.com/prometheus/client_golang/prometheus", "k8s.io/client-go/tools/cache"},
	},
	"metrics/serving": {
		own:    []string{"metrics", "replica"},
		others: []string{"github.com/prometheus/client_golang/prometheus"},
	},

	"internal/layout":              {},
	"internal/layout/size":         {own: []string{"internal/layout"}},
	"internal/layout/pages":        {own: []string{"internal/layout"}},
	"internal/layout/pages/insert": {own: []string{"internal/layout/pages"}},
	"internal/sbom":                {},
	"internal/kubetest/binaries":   {others: []string{"golang.org/x/mod/"}},
	"internal/kubetest/authority":  {},
	"internal/kubetest/etcd":       {own: []string{"internal/protobuf"}},
	"internal/kubetest": {own: []string{
		"internal/kubetest/authority", "internal/kubetest/binaries", "internal/kubetest/etcd", "internal/timer",
	}, others: []string{"k8s.io/", "sigs.k8s.io/yaml"}},
	"internal/kubetest/simulated": {own: []string{"internal/kubetest", "internal/kubetest/authority"}, others: []string{
		"github.com/klauspost/compress/gzip", "k8s.io/",
	}},
	"internal/kubetest/specimen": {others: []string{"k8s.io/", "sigs.k8s.io/randfill"}},
	"internal/wiretest": {own: []string{"internal/expect", "internal/kubetest/specimen", "wire"}, others: []string{
		"github.com/google/go-cmp/", "k8s.io/",
	}},
	"internal/kubetest/miniature":  {others: []string{"k8s.io/"}},
	"internal/kubetest/podprocess": {others: []string{"k8s.io/"}},
	"internal/kubetest/kubebuild":  {own: []string{"internal/kubetest/binaries"}, others: []string{"golang.org/x/"}},
	"internal/kubetest/kubecluster": {own: []string{"internal/kubetest", "internal/kubetest/binaries"},
		others: []string{
			"k8s.io/client-go/",
		}},

	"examples/pipeline": {own: []string{
		"delta", "store", "fanout", "reflector", "wire", "kube", "examples/internal/terminal",
	}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/",
	}},

	"examples/internal/programtest": {
		own:    []string{"kube"},
		others: []string{"github.com/google/go-cmp/", "k8s.io/client-go/rest"},
	},
	"examples/internal/terminal": {own: []string{"kube"}},
	"examples/watchdog": {own: []string{
		"delta", "store", "reflector", "wire", "kube", "examples/internal/terminal",
	}, others: []string{
		"k8s.io/api/",
	}},
	"examples/clients": {own: []string{"wire", "kube", "examples/internal/terminal"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"examples/sharedinformer": {
		own:    []string{".", "kube", "examples/internal/terminal"},
		others: []string{"k8s.io/api/"},
	},
	"examples/factory": {own: []string{".", "wire", "kube", "examples/internal/terminal"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/",
	}},
	"examples/controller": {own: []string{".", "kube", "examples/internal/terminal"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"examples/dropin": {own: []string{"kube", "compat", "examples/internal/terminal"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
	"examples/fleet": {own: []string{"wire", "fleet", "fleet/directory"}, others: []string{"k8s.io/apimachinery/"}},
	"examples/traps": {own: []string{".", "wire", "kube", "examples/internal/terminal"}, others: []string{
		"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/client-go/",
	}},
}

// published reports whether the file belongs to a module that users get.
func published(f layout.File) bool {
	return slices.Contains([]string{"", "metrics", "cmd/watershed"}, nestedModule(f.Dir()))
}

// nestedModule returns the module directory below the root that dir belongs to.
func nestedModule(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return dir
		}
	}
	return ""
}

var readOnce = sync.OnceValues(func() ([]layout.File, error) { return layout.Read(root) })

// sources returns the Go files of the checkout.
func sources(t *testing.T) []layout.File {
	t.Helper()
	files, err := readOnce()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestFiles_areLicensed(t *testing.T) {
	for _, s := range sources(t) {
		if !bytes.HasPrefix(s.Text, []byte(header)) && !bytes.HasPrefix(s.Text, []byte("//go:build ")) {
			t.Errorf("%s does not start with the licence header", s.Path)
		}
		if !bytes.Contains(s.Text, []byte(header)) {
			t.Errorf("%s has no licence header", s.Path)
		}
	}
}

func TestPackages_haveOneDocAndAGoodName(t *testing.T) {
	docs := map[string]int{}
	for _, s := range sources(t) {
		if s.Test() {
			continue
		}
		docs[s.Dir()] += 0
		if s.Syntax.Doc != nil {
			docs[s.Dir()]++
		}
		switch path.Base(s.Dir()) {
		case "util", "utils", "common", "helpers", "types", "interfaces", "model", "manager":
			t.Errorf("%s: a package is named for what it holds", s.Dir())
		}
	}
	for dir, n := range docs {
		if n != 1 {
			t.Errorf("package %s has %d package comments, want one", dir, n)
		}
	}
}

func TestImports_goOneWay(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !published(s) || s.Test() {
			continue
		}
		r, ok := rules[s.Dir()]
		if !ok {
			t.Errorf("package %s has no rule in internal/layout/layout_test.go: add the packages that it may import",
				s.Dir())
			continue
		}
		used[s.Dir()] = true
		for _, spec := range s.Syntax.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if !r.allows(imported) {
				t.Errorf("%s imports %s, which package %s must not know", s.Path, imported, s.Dir())
			}
		}
	}
	for dir := range rules {
		if !used[dir] {
			t.Errorf("the rule for %s has no package: delete it", dir)
		}
	}
}

func (r rule) allows(imported string) bool {
	if own, ok := ownPackage(imported); ok {
		return slices.Contains(r.own, own)
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(r.others, func(prefix string) bool { return strings.HasPrefix(imported, prefix) })
}

// ownPackage is the folder of a package of this module.
func ownPackage(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func TestImports_ruleRefusesTheOtherWay(t *testing.T) {
	if rules["delta"].allows(module + "/store") {
		t.Error("delta may import store")
	}
	if rules["store"].allows("k8s.io/client-go/kubernetes") {
		t.Error("store may import client-go")
	}
}

// TestOptions_areRead fails for a field of an Options struct that no code
// outside tests reads, neither in its package nor in one that imports it: a knob
// that does nothing.
func TestOptions_areRead(t *testing.T) {
	type field struct{ dir, name string }
	declared := map[field]bool{}
	reads := map[field]bool{}
	for _, s := range sources(t) {
		if s.Test() {
			continue
		}
		readers := []string{s.Dir()}
		for _, spec := range s.Syntax.Imports {
			if own, ok := ownPackage(strings.Trim(spec.Path.Value, `"`)); ok {
				readers = append(readers, own)
			}
		}
		assigned := map[ast.Node]bool{}
		ast.Inspect(s.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				st, ok := n.Type.(*ast.StructType)
				if !ok || !strings.HasSuffix(n.Name.Name, "Options") {
					return true
				}
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						declared[field{s.Dir(), name.Name}] = true
					}
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					assigned[left] = true
				}
			case *ast.IfStmt:
				// Comparing a field with zero to fill in its default is no use of it.
				if b, ok := n.Cond.(*ast.BinaryExpr); ok && fillsDefault(n.Body, b.X) {
					assigned[b.X] = true
				}
			case *ast.SelectorExpr:
				for _, dir := range readers {
					if !assigned[n] {
						reads[field{dir, n.Sel.Name}] = true
					}
				}
			}
			return true
		})
	}
	if len(declared) == 0 {
		t.Fatal("no Options struct found: the test looks in the wrong place")
	}
	for _, f := range slices.SortedFunc(maps.Keys(declared), func(a, b field) int {
		return strings.Compare(a.dir+a.name, b.dir+b.name)
	}) {
		if !reads[f] {
			t.Errorf("%s: no code reads the option %s", f.dir, f.name)
		}
	}
}

// fillsDefault reports whether body is one assignment to the selector.
func fillsDefault(body *ast.BlockStmt, sel ast.Expr) bool {
	want, ok := sel.(*ast.SelectorExpr)
	if !ok || len(body.List) != 1 {
		return false
	}
	assign, ok := body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 {
		return false
	}
	left, ok := assign.Lhs[0].(*ast.SelectorExpr)
	return ok && left.Sel.Name == want.Sel.Name
}

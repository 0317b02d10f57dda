// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import "maps"

func init() { maps.Copy(rules, commandRules) }

// commandRules are the rules for the program, its commands, and the packages that only commands
// import. No command imports another one.
var commandRules = map[string]rule{
	"cmd/watershed/internal/build": {},
	"cmd/watershed/internal/output": {
		own:    []string{"cmd/watershed/internal/completion"},
		others: []string{"github.com/spf13/cobra", "sigs.k8s.io/yaml"},
	},
	"cmd/watershed/internal/usage": {others: []string{"github.com/spf13/"}},
	"cmd/watershed/internal/state": {
		own:    []string{"cmd/watershed/internal/statefile"},
		others: []string{"github.com/spf13/cobra"},
	},
	"cmd/watershed/internal/completion": {
		own:    []string{"fleet/directory"},
		others: []string{"github.com/spf13/cobra"},
	},
	"cmd/watershed/internal/apiclient": {
		own: []string{
			"fleet/directory", "cmd/watershed/internal/completion", "cmd/watershed/internal/serving",
			"cmd/watershed/internal/state", "cmd/watershed/internal/status", "cmd/watershed/internal/usage",
		},
		others: []string{
			"github.com/spf13/", "k8s.io/apimachinery/", "k8s.io/client-go/",
		},
	},
	"cmd/watershed/internal/settings": {
		own: []string{
			"wire", "kube", "disk", "fleet", "fleet/directory", "replica", "cmd/watershed/internal/access",
			"cmd/watershed/internal/audit", "cmd/watershed/internal/authn", "cmd/watershed/internal/build",
			"cmd/watershed/internal/config", "cmd/watershed/internal/group", "cmd/watershed/internal/kms",
			"cmd/watershed/internal/serving", "cmd/watershed/internal/state", "cmd/watershed/internal/tracing",
			"cmd/watershed/internal/usage",
		},
		others: []string{"github.com/spf13/pflag", "k8s.io/apimachinery/", "k8s.io/client-go/"},
	},
	"cmd/watershed/internal/commandtest": {
		own: []string{
			"fleet", "internal/expect", "cmd/watershed/internal/access", "cmd/watershed/internal/serving",
			"cmd/watershed/internal/settings", "cmd/watershed/internal/state",
		},
		others: []string{"github.com/spf13/", "k8s.io/client-go/"},
	},
	"cmd/watershed/internal/command/serve": {
		own: []string{
			"wire", "fleet", "fleet/directory", "replica", "internal/document", "internal/timer", "internal/warning",
			"cmd/watershed/internal/access", "cmd/watershed/internal/audit", "cmd/watershed/internal/budget",
			"cmd/watershed/internal/build", "cmd/watershed/internal/completion", "cmd/watershed/internal/config",
			"cmd/watershed/internal/exposition", "cmd/watershed/internal/group", "cmd/watershed/internal/overload",
			"cmd/watershed/internal/peer", "cmd/watershed/internal/progress", "cmd/watershed/internal/remedy",
			"cmd/watershed/internal/serving", "cmd/watershed/internal/settings",
			"cmd/watershed/internal/state", "cmd/watershed/internal/terminal", "cmd/watershed/internal/tracing",
			"cmd/watershed/internal/verification",
		},
		others: []string{
			"github.com/spf13/cobra", "k8s.io/apimachinery/", "k8s.io/client-go/rest", "k8s.io/klog/v2",
		},
	},
	"cmd/watershed/internal/command/kubeconfig": {
		own: []string{
			"fleet/directory", "cmd/watershed/internal/apiclient", "cmd/watershed/internal/completion",
			"cmd/watershed/internal/state", "cmd/watershed/internal/statefile", "cmd/watershed/internal/status",
		},
		others: []string{"github.com/spf13/cobra", "k8s.io/client-go/"},
	},
	"cmd/watershed/internal/command/past": {
		own: []string{
			"kube", "internal/document", "internal/jsondiff", "cmd/watershed/internal/apiclient",
			"cmd/watershed/internal/output",
		},
		others: []string{
			"github.com/spf13/cobra", "k8s.io/apimachinery/", "k8s.io/client-go/",
		},
	},
	"cmd/watershed/internal/command/check": {
		own: []string{
			"fleet", "fleet/directory", "cmd/watershed/internal/completion", "cmd/watershed/internal/output",
			"cmd/watershed/internal/preflight", "cmd/watershed/internal/serving", "cmd/watershed/internal/settings",
			"cmd/watershed/internal/status", "cmd/watershed/internal/terminal",
		},
		others: []string{"github.com/spf13/cobra", "k8s.io/client-go/util/workqueue"},
	},
	"cmd/watershed/internal/command/status": {
		own: []string{
			"internal/timer", "cmd/watershed/internal/apiclient", "cmd/watershed/internal/output",
			"cmd/watershed/internal/status", "cmd/watershed/internal/terminal",
		},
		others: []string{"github.com/spf13/cobra"},
	},
	"cmd/watershed/internal/command/verify": {
		own: []string{
			"cmd/watershed/internal/apiclient", "cmd/watershed/internal/output", "cmd/watershed/internal/status",
			"cmd/watershed/internal/verification",
		},
		others: []string{"github.com/spf13/cobra", "k8s.io/apimachinery/", "k8s.io/client-go/util/workqueue"},
	},
	"cmd/watershed/internal/command/rbac": {
		own: []string{
			"kube", "fleet", "cmd/watershed/internal/access", "cmd/watershed/internal/completion",
			"cmd/watershed/internal/settings",
		},
		others: []string{
			"github.com/spf13/cobra", "k8s.io/api/rbac/v1", "k8s.io/apimachinery/",
		},
	},
	"cmd/watershed/internal/command/disk": {
		own:    []string{"internal/storage", "cmd/watershed/internal/settings"},
		others: []string{"github.com/spf13/", "k8s.io/apimachinery/"},
	},
	"cmd/watershed/internal/command/config": {
		own:    []string{"cmd/watershed/internal/settings"},
		others: []string{"github.com/spf13/cobra"},
	},
	"cmd/watershed/internal/command/version": {
		own: []string{
			"cmd/watershed/internal/apiclient", "cmd/watershed/internal/build", "cmd/watershed/internal/output",
			"cmd/watershed/internal/state", "cmd/watershed/internal/terminal",
		},
		others: []string{"github.com/spf13/cobra"},
	},
	"cmd/watershed": {
		own: []string{
			"cmd/watershed/internal/build", "cmd/watershed/internal/config", "cmd/watershed/internal/command/check",
			"cmd/watershed/internal/command/config", "cmd/watershed/internal/command/disk",
			"cmd/watershed/internal/command/kubeconfig", "cmd/watershed/internal/command/past",
			"cmd/watershed/internal/command/rbac", "cmd/watershed/internal/command/serve",
			"cmd/watershed/internal/command/status", "cmd/watershed/internal/command/verify",
			"cmd/watershed/internal/command/version", "cmd/watershed/internal/terminal",
			"cmd/watershed/internal/usage",
		},
		others: []string{"github.com/spf13/"},
	},
}

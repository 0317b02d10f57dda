// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	controlledFlag = flag.Int("controlled", 50,
		"how many pods TestControllers lets the controllers create and place")
	controlledDirectFlag = flag.Bool("controlled.direct", false,
		"let controllers at the API server do the same work before, and print their requests too")
)

// The users of the controllers, which have roles of the same names in every cluster.
const (
	managerUser   = "system:kube-controller-manager"
	schedulerUser = "system:kube-scheduler"
)

// controllers are the names of the programs in their user agents.
var controllers = []string{"kube-controller-manager", "kube-scheduler"}

// TestControllers runs kube-controller-manager and kube-scheduler entirely through a replica
// that passes requests on. They must bring a workload to all desired states, and few of their
// reads may reach the API server.
func TestControllers(t *testing.T) {
	var direct, through controlResult
	if *controlledDirectFlag {
		t.Run("direct", func(t *testing.T) { direct = control(t, false) })
	}
	t.Run("through", func(t *testing.T) { through = control(t, true) })
	if t.Failed() || through.reached == nil {
		return
	}
	logShares(t, direct.reached, through.sent, through.reached)
	if *controlledDirectFlag {
		direct.reached.log(t, "requests without a replica")
	}
	through.sent.log(t, "requests to the replica")
	through.reached.log(t, "requests that reached the API server")
	for _, program := range controllers {
		t.Logf("%s: errors at the API server:%s\nand through the replica:%s", program, direct.errors[program],
			through.errors[program])
		judgeShares(t, program, through)
	}
}

// judgeShares checks which share of the requests of a program reached the API server.
//
// Of the watches and lists these are one watch and one list of secrets, which are not mirrored
// unless they are named, of 95 in all; some slack is for a copy that was late. Most gets are
// those of the garbage collector, which the copy must not answer, so their number depends on
// the work. Gets of nodes and namespaces are those of other controllers.
func judgeShares(t *testing.T, program string, through controlResult) {
	t.Helper()
	collections := func(k requestKind) bool { return isReadVerb(k) && k.verb != "get" }
	singles := func(k requestKind) bool { return k.verb == "get" && (k.what == "nodes" || k.what == "namespaces") }
	for name, match := range map[string]func(requestKind) bool{
		"watches and lists": collections, "gets of nodes and namespaces": singles,
	} {
		sent, reached := through.sent.of(program, match), through.reached.of(program, match)
		if 10*reached > sent {
			t.Errorf("%s: %d of %d %s reached the API server", program, reached, sent, name)
		}
	}
	if n := through.sent.of(program, collections); n < 15 {
		t.Errorf("%s: only %d watches and lists: it does not use the replica", program, n)
	}
	// Those that are under way when the program is killed may be in only one of the logs.
	sent, reached := through.sent.of(program, isWriteVerb), through.reached.of(program, isWriteVerb)
	if sent == 0 || max(sent, reached)-min(sent, reached) > 5 {
		t.Errorf("%s: %d writes to the replica, %d at the API server", program, sent, reached)
	}
}

// controlResult is what the controllers have sent and logged.
type controlResult struct {
	// sent are the requests to the replica, nil without one, and reached those that reached
	// the API server.
	sent, reached tally
	// errors are the errors in the logs of the programs, counted by kind.
	errors map[string]string
}

// control starts a cluster whose controllers use the API server or a replica, and lets them
// do their work.
func control(t *testing.T, replicated bool) (result controlResult) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	expect.NoError(t, os.WriteFile(policy,
		[]byte(
			`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}],"omitStages":["RequestReceived"]}`,
		), 0o600))
	log, ownLog := filepath.Join(dir, "server.log"), filepath.Join(dir, "replica.log")
	opts := &kubetest.Options{
		Name: "one", Users: []kubetest.User{{Name: managerUser}, {Name: schedulerUser}},
		APIServerArgs: []string{
			"--audit-policy-file=" + policy, "--audit-log-path=" + log, "--audit-log-maxsize=10000",
		},
	}
	var c *kubetest.Cluster
	var p *passing
	at := func(user string) *rest.Config { return c.UserConfig(user) }
	if replicated {
		p = startPassing(t, opts, "--audit-log", ownLog, "--audit-log-maxsize", "10000")
		c, at = p.cluster, p.at
		expect.Soon(t, "the copy is complete", func() bool { return p.readies(t) })
	} else {
		c = kubetest.Start(t, opts)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	startControllers(ctx, t, c, at)
	client, err := kubernetes.NewForConfig(c.Config())
	expect.NoError(t, err)
	w := &controlledWork{T: t, client: client, pods: *controlledFlag}
	w.run(ctx)
	result.errors = map[string]string{}
	for _, program := range []*kubetest.Process{c.ControllerManager, c.Scheduler} {
		if program.PID() == 0 {
			t.Errorf("%s has ended: %s", program.Name(), program.Tail(4<<10))
		}
		program.Kill()
		result.errors[program.Name()] = loggedErrors(t, program.Log())
	}
	if replicated {
		p.process.Stop() // it writes all audit events
		if text := p.process.Log.String(); strings.Contains(text, "audit events are lost") {
			t.Errorf("the audit log is not complete: %s", text)
		}
		result.sent = readAudit(t, ownLog)
	}
	result.reached = readAudit(t, log)
	return result
}

// startControllers starts the controllers and nodes of a cluster. The controllers have tokens
// of their own, and elect leaders.
func startControllers(ctx context.Context, t *testing.T, c *kubetest.Cluster, at func(user string) *rest.Config) {
	t.Helper()
	dir := t.TempDir()
	nodes := &kubetest.Controllers{
		Nodes:   2 + *controlledFlag/80,
		Manager: filepath.Join(dir, "manager.yaml"), Scheduler: filepath.Join(dir, "scheduler.yaml"),
		// Every controller has an account and a token of its own, as in most clusters.
		ManagerArgs: []string{
			"--leader-elect=true", "--use-service-account-credentials", "--kube-api-qps=200", "--kube-api-burst=300",
		},
		SchedulerArgs: []string{"--leader-elect=true"},
	}
	writeKubeconfigOf(t, nodes.Manager, at(managerUser))
	writeKubeconfigOf(t, nodes.Scheduler, at(schedulerUser))
	expect.NoError(t, c.StartNodes(ctx, nodes))
}

// writeKubeconfigOf writes a kubeconfig with the access of a user with a token.
func writeKubeconfigOf(t *testing.T, path string, c *rest.Config) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var controlledFlag = flag.Int("controlled", 50, "how many pods TestControllers lets the controllers create and place")

// The users of the controllers, which have roles of the same names in every cluster.
const (
	managerUser   = "system:kube-controller-manager"
	schedulerUser = "system:kube-scheduler"
)

// TestControllers runs kube-controller-manager and kube-scheduler at the API server, and then
// entirely through a replica that passes requests on. Both must bring the same workload to
// the same states. Through the replica, few reads may reach the API server.
func TestControllers(t *testing.T) {
	var direct, through tally
	t.Run("direct", func(t *testing.T) { direct = control(t, nil) })
	t.Run("through", func(t *testing.T) {
		var all tally
		through = control(t, &all)
		if t.Failed() {
			return
		}
		all.log(t, "requests to the replica")
		through.log(t, "requests that reached the API server")
		judgeReads(t, all, through)
	})
	if t.Failed() || len(direct) == 0 || len(through) == 0 {
		return
	}
	for _, client := range []string{"kube-controller-manager", "kube-scheduler"} {
		t.Logf("%s: %d requests at the API server, of which %d reads; through the replica %d, of which %d reads", client,
			direct.of(client, isAnyVerb), direct.of(client, isReadVerb), through.of(client, isAnyVerb), through.of(client, isReadVerb))
	}
	direct.log(t, "requests without a replica")
}

// judgeReads checks which share of the reads reached the API server.
func judgeReads(t *testing.T, all, reached tally) {
	t.Helper()
	for _, client := range []string{"kube-controller-manager", "kube-scheduler"} {
		reads, passed := all.of(client, isReadVerb), reached.of(client, isReadVerb)
		if reads < 20 {
			t.Errorf("%s: only %d reads: it does not use the replica", client, reads)
		}
		if 2*passed > reads {
			t.Errorf("%s: %d of %d reads reached the API server", client, passed, reads)
		}
		if writes := reached.of(client, isWriteVerb); writes == 0 {
			t.Errorf("%s: no writes reached the API server", client)
		}
	}
}

// control starts a cluster whose controllers use the API server or, unless all is nil, a
// replica, and lets them do their work. It returns the requests that reached the API server,
// and sets all to those that reached the replica.
func control(t *testing.T, all *tally) tally {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}],"omitStages":["RequestReceived"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "server.log")
	opts := &kubetest.Options{
		Name: "one", Users: []kubetest.User{{Name: managerUser}, {Name: schedulerUser}},
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log},
	}
	ownLog := filepath.Join(dir, "replica.log")
	var c *kubetest.Cluster
	at := func(user string) *rest.Config { return c.UserConfig(user) }
	if all == nil {
		c = kubetest.Start(t, opts)
	} else {
		p := startPassing(t, opts, "--audit-log", ownLog)
		c, at = p.cluster, p.at
		expect.Soon(t, "the copy is complete", func() bool { return p.readies(t) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	nodes := &kubetest.Controllers{
		Nodes:   2 + *controlledFlag/80,
		Manager: filepath.Join(dir, "manager.yaml"), Scheduler: filepath.Join(dir, "scheduler.yaml"),
		// Every controller has an account and a token of its own, as in most clusters.
		ManagerArgs: []string{"--use-service-account-credentials", "--kube-api-qps=200", "--kube-api-burst=300"},
	}
	writeKubeconfigOf(t, nodes.Manager, at(managerUser))
	writeKubeconfigOf(t, nodes.Scheduler, at(schedulerUser))
	if err := c.StartNodes(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	w := &controlledWork{T: t, client: client, pods: *controlledFlag}
	w.run(ctx)
	c.ControllerManager.Kill()
	c.Scheduler.Kill()
	if all != nil {
		*all = readAudit(t, ownLog)
	}
	return readAudit(t, log)
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

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	writingTime  = flag.Duration("writing.time", 30*time.Second, "how long TestWriting changes the cluster, for each of two operators")
	writingKills = flag.Int("writing.kills", 1, "how often TestWriting kills the replica")
)

// The users of the operators.
const (
	directUser  = "direct-operator"
	throughUser = "through-operator"
)

// conflictSlack is how many conflicts of an operator each kill of the replica may cause: its
// cache is behind for a while.
const conflictSlack = 20

// TestWriting runs an operator that reads and writes only through the replica, with a user's
// token, while the cluster changes and the replica is killed. In the end all of its work must
// be done. An operator at the API server did the same before: its writes have about as many
// conflicts.
func TestWriting(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	expect.NoError(t, os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"None","userGroups":["system:masters"]},{"level":"Metadata"}],"omitStages":["RequestReceived"]}`), 0o600))
	c := kubetest.Start(t, &kubetest.Options{
		Name: clusterName, Nodes: 4, Users: []kubetest.User{{Name: directUser}, {Name: throughUser}},
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log},
	})
	defineSites(t, c)
	for _, user := range []string{directUser, throughUser} {
		expect.NoError(t, c.Grant(t.Context(), user, "", operatorRules...))
	}
	churn := newChurn(t, c, 1, *rate)
	t.Run("direct", func(t *testing.T) {
		w := &writing{T: t, cluster: c, churn: churn}
		w.run(c.UserConfig(directUser))
	})
	t.Run("through", func(t *testing.T) {
		w := &writing{T: t, cluster: c, churn: churn, replica: newReplica(t, c, "--pass-through")}
		at, err := restConfig(w.replica)
		expect.NoError(t, err)
		at.BearerToken = c.UserConfig(throughUser).BearerToken
		w.run(at)
		if err := panics(w.replica.complaints()); err != nil {
			t.Error(err)
		}
	})
	direct, through := usageOf(t, log, directUser), usageOf(t, log, throughUser)
	t.Logf("at the API server: %+v; through the replica: %+v", direct, through)
	if direct.writes == 0 || through.writes == 0 {
		t.Error("an operator has written nothing")
	}
	// A rate has some chance in it: twice as many conflicts are not a sign of stale reads.
	if most := 2*direct.conflicts*through.writes/max(1, direct.writes) + conflictSlack*(1+*writingKills); through.conflicts > most {
		t.Errorf("%d conflicts, want at most %d", through.conflicts, most)
	}
	if through.reads > direct.reads/2 {
		t.Errorf("%d reads reached the API server, of an operator without the replica %d", through.reads, direct.reads)
	}
}

// operatorRules are the rights of an operator.
var operatorRules = []rbacv1.PolicyRule{
	{APIGroups: []string{sites.Group}, Resources: []string{sites.Resource, sites.Resource + "/status"}, Verbs: []string{"get", "list", "watch", "update"}},
	{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch", "create", "update"}},
	{APIGroups: []string{""}, Resources: []string{"secrets", "pods"}, Verbs: []string{"get", "list", "watch"}},
}

// writing is the life of one operator.
type writing struct {
	*testing.T
	cluster *kubetest.Cluster
	churn   *churn
	// replica is the one that the operator uses, or nil.
	replica *replica
}

// run starts an operator with an access, changes the cluster, and waits until the operator's
// work is done.
func (w *writing) run(at *rest.Config) {
	w.Helper()
	kubeconfig := filepath.Join(w.TempDir(), "kubeconfig")
	writeAccess(w.T, kubeconfig, at)
	o := startOperator(w.T, w.cluster, "-kubeconfig", kubeconfig)
	ctx, cancel := context.WithTimeout(w.Context(), *writingTime)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { w.churn.run(ctx) })
	if w.replica != nil {
		w.kill(ctx)
	}
	running.Wait()

	began := time.Now()
	w.settled(o, false)
	expect.NoError(w, o.nudge(w.Context()))
	count := w.settled(o, true)
	w.Logf("%d sites as they should be, %s after the last change; %d errors of the operator", count, time.Since(began).Round(100*time.Millisecond), len(o.errors(0)))
	from := len(o.lines(0))
	time.Sleep(calm / 2)
	if lines := o.errors(from); len(lines) > 0 {
		w.Errorf("the operator still fails:\n%s", strings.Join(lines, "\n"))
	}
	if err := panics(o.lines(0)); err != nil {
		w.Error(err)
	}
}

// kill kills the replica several times, in equal intervals, and starts it again.
func (w *writing) kill(ctx context.Context) {
	w.Helper()
	pause := *writingTime / time.Duration(*writingKills+1)
	for range *writingKills {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		w.replica.kill()
		time.Sleep(2 * time.Second)
		expect.NoError(w, w.replica.start(w.Context()))
	}
}

// settled waits until the operator has done its work, and returns how many sites there are.
func (w *writing) settled(o *operator, withPods bool) (count int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	expect.NoError(w, expect.Until(ctx, func() (err error) {
		count, err = o.reconciled(ctx, withPods)
		return err
	}))
	return count
}

// writeAccess writes a kubeconfig for an access with a token.
func writeAccess(t *testing.T, path string, c *rest.Config) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "c"
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
}

// usage counts the requests of a user that the API server has answered.
type usage struct {
	reads, writes, conflicts, other int
}

// usageOf reads the usage of a user from the audit log of the API server.
func usageOf(t *testing.T, path, user string) (u usage) {
	t.Helper()
	f, err := os.Open(path)
	expect.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		expect.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		if e.User.Username != user || e.Stage != auditv1.StageResponseComplete && e.Verb != "watch" || e.Verb == "watch" && e.Stage != auditv1.StageResponseStarted {
			continue
		}
		switch e.Verb {
		case "get", "list", "watch":
			if e.ObjectRef == nil {
				u.other++
				continue
			}
			u.reads++
		default:
			u.writes++
			if e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusConflict {
				u.conflicts++
			}
		}
	}
	expect.NoError(t, lines.Err())
	return u
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var (
	writingTime   = flag.Duration("writing.time", 5*time.Second, "how long TestWriting changes the cluster")
	writingKills  = flag.Int("writing.kills", 0, "how often TestWriting kills the replica")
	writingDirect = flag.Bool("writing.direct", false,
		"first run an operator at the API server, for as long, and compare the conflicts")
)

// The users of the operators.
const (
	directUser  = "direct-operator"
	throughUser = "through-operator"
)

// readsPerKill is how many reads may reach the API server after a kill: until the copy has been
// read, the cluster answers the list and the watch of the operator's four resources, and clients
// may try each twice. In ten minutes with two kills there were 7.
const readsPerKill = 16

// TestWriting runs an operator that reads and writes only through the replica, with a user's
// token, while the cluster changes and, if desired, the replica is killed. Its writes may fail
// only because other clients changed the same object. In the end all of its work must be done.
func TestWriting(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	log, args := newAudit(t, `{"level":"None","userGroups":["system:masters"]},{"level":"Metadata"}`)
	c := kubetest.Start(t, &kubetest.Options{
		Name: clusterName, Nodes: 4, Users: []kubetest.User{{Name: directUser}, {Name: throughUser}},
		APIServerArgs: args,
	})
	defineSites(t, c)
	for _, user := range []string{directUser, throughUser} {
		expect.NoError(t, c.Grant(t.Context(), user, "", operatorRules...))
	}
	churn := newChurn(t, c, 1, *rate)
	if *writingDirect {
		t.Run("direct", func(t *testing.T) {
			w := &writing{T: t, cluster: c, churn: churn}
			w.run(c.UserConfig(directUser))
		})
	}
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
	t.Logf("%d changes; without a replica: %s; through the replica: %s", churn.writes.Load(), direct, through)
	judgeUsage(t, direct, through)
}

// judgeUsage checks the requests of the operators that reached the API server.
func judgeUsage(t *testing.T, direct, through usage) {
	t.Helper()
	if through.writes == 0 || *writingDirect && direct.writes == 0 {
		t.Error("an operator has written nothing")
	}
	if through.failed > 0 {
		t.Errorf("%d writes failed for another reason than a change by another client", through.failed)
	}
	if most := readsPerKill * *writingKills; through.reads > most {
		t.Errorf("%d reads reached the API server, want at most %d", through.reads, most)
	}
}

// operatorRules are the rights of an operator.
var operatorRules = []rbacv1.PolicyRule{
	{
		APIGroups: []string{sites.Group},
		Resources: []string{sites.Resource, sites.Resource + "/status"},
		Verbs:     []string{"get", "list", "watch", "update"},
	},
	{
		APIGroups: []string{"apps"},
		Resources: []string{"deployments"},
		Verbs:     []string{"get", "list", "watch", "create", "update"},
	},
	{APIGroups: []string{""}, Resources: []string{"secrets", "pods"}, Verbs: []string{"get", "list", "watch"}},
}

// writing is the life of one operator.
type writing struct {
	*testing.T
	cluster *kubetest.Cluster
	churn   *churn
	// replica is the one that the operator uses, or nil.
	replica  *replica
	operator *operator
	// away are the parts of the operator's log from the times when the replica was away or
	// had just begun, as numbers of the first line and of the line after the last.
	away [][2]int
}

// run starts an operator with an access, changes the cluster, and waits until the operator's
// work is done.
func (w *writing) run(at *rest.Config) {
	w.Helper()
	kubeconfig := filepath.Join(w.TempDir(), "kubeconfig")
	writeAccess(w.T, kubeconfig, at)
	w.operator = startOperator(w.T, w.cluster, "-kubeconfig", kubeconfig)
	ctx, cancel := context.WithTimeout(w.Context(), *writingTime)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { w.churn.run(ctx) })
	if w.replica != nil {
		w.kill(ctx)
	}
	running.Wait()

	began := time.Now()
	w.settled(func(ctx context.Context) (int, error) { return w.operator.reconciled(ctx, false) })
	took := time.Since(began)
	// The pods of a site are counted again only when the site is reconciled.
	quiet := changes(w.Context(), w.cluster)
	w.settled(func(context.Context) (int, error) { return quiet() })
	expect.NoError(w, w.operator.nudge(w.Context()))
	count := w.settled(func(ctx context.Context) (int, error) { return w.operator.reconciled(ctx, true) })
	w.Logf("%d sites as they should be, %s after the last change", count, took.Round(100*time.Millisecond))
	from := len(w.operator.lines(0))
	time.Sleep(calm / 2) // no error may be logged in this time
	if lines := w.operator.errors(from); len(lines) > 0 {
		w.Errorf("the operator still fails:\n%s", strings.Join(lines, "\n"))
	}
	w.judge()
}

// judge checks the log of the operator.
func (w *writing) judge() {
	w.Helper()
	lines := w.operator.lines(0)
	all := errorsIn(lines)
	w.Logf("%d errors of the operator:%s", len(all), tally(all))
	if err := panics(lines); err != nil {
		w.Error(err)
	}
	for _, part := range slices.Backward(w.away) {
		lines = slices.Delete(lines, part[0], part[1])
	}
	if unexpected := slices.DeleteFunc(errorsIn(lines), isRace); len(unexpected) > 0 {
		w.Errorf("%d errors while the replica was there:%s", len(unexpected), tally(unexpected))
	}
}

// isRace reports whether an error says that another client was faster, which every operator
// must expect.
func isRace(line string) bool {
	for _, text := range []string{
		"not found", "already exists", "Precondition failed: UID", "is already owned by another",
	} {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
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
		from := len(w.operator.lines(0))
		w.replica.kill()
		time.Sleep(2 * time.Second) // how long the replica is away
		expect.NoError(w, w.replica.start(w.Context()))
		time.Sleep(calm) // errors in this time are due to the kill
		w.away = append(w.away, [2]int{from, len(w.operator.lines(0))})
	}
}

// settled waits until check returns no error, and returns its count.
func (w *writing) settled(check func(context.Context) (int, error)) (count int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	expect.NoError(w, expect.Until(ctx, func() (err error) {
		count, err = check(ctx)
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
	reads, writes int
	// conflicts, exists and missing are the writes that failed because another client had
	// changed, created or deleted the object, and failed those that failed otherwise.
	conflicts, exists, missing, failed int
}

func (u usage) String() string {
	return fmt.Sprintf("%d reads, %d writes (%d conflicts, %d objects that exist, %d that do not, %d other failures)",
		u.reads, u.writes, u.conflicts, u.exists, u.missing, u.failed)
}

// usageOf reads the usage of a user from the audit log of the API server.
func usageOf(t *testing.T, log audit, user string) (u usage) {
	t.Helper()
	log.requests(t, func(e *auditv1.Event) {
		if e.User.Username == user {
			u.add(e)
		}
	})
	return u
}

func (u *usage) add(e *auditv1.Event) {
	switch e.Verb {
	case "get", "list", "watch":
		u.reads++
		return
	}
	u.writes++
	switch s := e.ResponseStatus; {
	case s == nil || s.Code < http.StatusBadRequest:
	case s.Reason == metav1.StatusReasonConflict:
		u.conflicts++
	case s.Reason == metav1.StatusReasonAlreadyExists:
		u.exists++
	case s.Reason == metav1.StatusReasonNotFound:
		u.missing++
	default:
		u.failed++
	}
}

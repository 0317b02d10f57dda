// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// secretsVariable is the number of secrets.
	secretsVariable = "WATERSHED_SECRETS"
	// secretCount is its default.
	secretCount = 200
	// secretBytes is the size of a secret's data.
	secretBytes = 1_000_000
	// informerRole is the role of a process with an informer.
	informerRole = "informer"
)

// informerTask is the task of an informer.
type informerTask struct {
	At harness.Address
	// Dynamic informers read JSON, typed ones protobuf.
	Dynamic bool
	// Secrets is the number of secrets.
	Secrets int
}

// surge is the effect of informers that start at once on the memory of a server.
type surge struct {
	informers int
	dynamic   bool
	// steady is the RSS before the first of all informers, peak the largest meanwhile.
	steady, peak uint64
}

// ratio returns the peak divided by the steady RSS.
func (s surge) ratio() float64 { return float64(s.peak) / float64(max(1, s.steady)) }

// benchSecrets measures the memory of servers while informers read 200 secrets of 1 MB.
func benchSecrets(out io.Writer) error {
	n, err := harness.EnvInt(secretsVariable, secretCount)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	version, err := harness.ServerVersion(c.Config())
	if err != nil {
		return err
	}
	if err := createSecrets(ctx, c, n); err != nil {
		return err
	}
	// The restart frees the memory that writing has left.
	c.APIServer.Kill()
	if err := c.APIServer.Start(ctx); err != nil {
		return err
	}
	ours, err := harness.StartReplica(ctx, c, "secrets", nil)
	if err != nil {
		return err
	}
	defer ours.Close()
	mine, err := measureSurges(ctx, &ours.Server, n)
	if err != nil {
		return err
	}
	theirs, err := measureSurges(ctx, harness.APIServer(c), n)
	if err != nil {
		return err
	}
	r := secretsReport(n, mine, theirs)
	r.Server = version
	return r.Write(out)
}

// secretsReport returns the report.
func secretsReport(n int, mine, theirs []surge) *harness.Report {
	// The worse of typed and dynamic counts.
	worst := func(s []surge, informers int) (most float64) {
		for _, one := range s {
			if one.informers == informers {
				most = max(most, one.ratio())
			}
		}
		return most
	}
	r := &harness.Report{
		Name: "secrets",
		Heading: fmt.Sprintf("%d secrets of 1 MB that cannot be compressed; client-go's informers, "+
			"each in a process of its own, that start at the same time. Peak is the most that the server's RSS was "+
			"until all had synced.", n),
		Columns:  []string{"server", "informers"},
		Measures: harness.Program,
		Figure:   harness.Figure{Title: fmt.Sprintf("%d secrets of 1 MB", n)},
		Partial:  n != secretCount || harness.IsExperiment(),
		Summary: fmt.Sprintf("secrets: steady-mb=%s one=%.2fx five=%.2fx apiserver one=%.2fx five=%.2fx",
			harness.Megabytes(float64(mine[0].steady)), worst(mine, 1), worst(mine, 5), worst(theirs, 1),
			worst(theirs, 5)),
	}
	for i := range mine {
		row := func(key, name, colour string, s surge) harness.Row[surge] {
			bar := harness.Bar{Name: name, Colour: colour}
			key = harness.Key(s.String()) + "." + key
			return harness.Row[surge]{Bar: bar, Cells: []string{name, s.String()}, Key: key, Reading: s}
		}
		harness.AddRows(r, []harness.Row[surge]{
			row("ours", "Watershed", harness.ColourOurs, mine[i]),
			row("kube", "kube-apiserver", harness.ColourClientGo, theirs[i]),
		},
			harness.Col("steady, MB", harness.MB, func(s surge) uint64 { return s.steady }).As("steady", "bytes"),
			harness.Col("peak, MB", harness.MB, func(s surge) uint64 { return s.peak }, mine[i].String()+": peak, MB").
				As("peak", "bytes"),
			harness.Col("peak / steady", "%.2f", surge.ratio),
		)
	}
	return r
}

// createSecrets creates secrets of random bytes.
func createSecrets(ctx context.Context, c *kubetest.Cluster, n int) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{1})
	for i := range n {
		data := make([]byte, secretBytes)
		_, _ = random.Read(data) // never fails
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%03d", i)},
			Data:       map[string][]byte{"data": data},
		}
		if _, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, secret,
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create secret %s: %w", secret.Name, err)
		}
	}
	return nil
}

// String returns the text for the table.
func (s surge) String() string {
	kind := "typed"
	if s.dynamic {
		kind = "dynamic"
	}
	return strconv.Itoa(s.informers) + " " + kind
}

// measureSurges starts one informer and then five, typed ones and then dynamic ones.
func measureSurges(ctx context.Context, s *harness.Server, secrets int) ([]surge, error) {
	steady, err := s.SettledMemory()
	if err != nil {
		return nil, err
	}
	all := []surge{{informers: 1}, {informers: 5}, {informers: 1, dynamic: true}, {informers: 5, dynamic: true}}
	for i := range all {
		one := &all[i]
		one.steady = steady
		if err := one.measure(ctx, s, secrets); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", one, s.Name, err)
		}
		if _, err := s.SettledMemory(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measure starts the informers at once and waits until all have synced.
func (s *surge) measure(ctx context.Context, from *harness.Server, secrets int) error {
	readers := make([]*harness.Child, s.informers)
	for i := range readers {
		c, err := harness.StartChild(ctx, informerRole, informerTask{
			At: from.Address(), Dynamic: s.dynamic, Secrets: secrets,
		})
		if err != nil {
			return err
		}
		defer c.Close()
		readers[i] = c
	}
	var err error
	s.peak, err = from.PeakMemory(func() error {
		for _, c := range readers {
			if err := c.Command("sync"); err != nil {
				return err
			}
		}
		for _, c := range readers {
			var got int
			if err := c.Answer(&got); err != nil || got != secrets {
				return fmt.Errorf("an informer has %d secrets: %w", got, err)
			}
		}
		return nil
	})
	return err
}

// serveInformer is the role of an informer. It waits for a command, syncs, answers with
// the number of secrets, and keeps them until its input ends.
func serveInformer(text []byte, in io.Reader, out io.Writer) error {
	var task informerTask
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	informer, err := newInformer(&task)
	if err != nil {
		return err
	}
	commands := bufio.NewReader(in)
	if _, err := commands.ReadString('\n'); err != nil {
		return nil // the benchmark has ended
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go informer.RunWithContext(ctx) // lives as long as the process
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the informer did not sync")
	}
	if err := json.NewEncoder(out).Encode(len(informer.GetStore().ListKeys())); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, commands)
	return err
}

func newInformer(task *informerTask) (cache.SharedIndexInformer, error) {
	cfg := task.At.Server().Config
	if task.Dynamic {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client,
			0).ForResource(corev1.SchemeGroupVersion.WithResource("secrets")).Informer(), nil
	}
	cfg.ContentType = harness.Protobuf
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return informers.NewSharedInformerFactory(client, 0).Core().V1().Secrets().Informer(), nil
}

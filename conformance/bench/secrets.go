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

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// secretsVariable is for another number of secrets than 200.
	secretsVariable = "WATERSHED_SECRETS"
	// secretBytes is how much data each has.
	secretBytes = 1_000_000
)

// informerTask is what an informer reads.
type informerTask struct {
	At access
	// Dynamic reads JSON, otherwise it is typed and protobuf.
	Dynamic bool
	// Secrets is how many there are.
	Secrets int
}

// surge is what informers that start at once do to the memory of a server.
type surge struct {
	informers int
	dynamic   bool
	// steady is the RSS before the first informer of all, peak the most meanwhile.
	steady, peak uint64
}

func (s surge) times() float64 { return float64(s.peak) / float64(max(1, s.steady)) }

// benchSecrets measures the memory of servers while informers read 200 secrets of 1 MB.
func benchSecrets(out io.Writer) error {
	if done, err := isCompanion(out); done {
		return err
	}
	n, err := variable(secretsVariable, 200)
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := kubetest.New(ctx, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	version, err := serverVersion(c.Config())
	if err != nil {
		return err
	}
	if err := createSecrets(ctx, c, n); err != nil {
		return err
	}
	// What writing has left in its memory is not what reading costs.
	c.APIServer.Kill()
	if err := c.APIServer.Start(ctx); err != nil {
		return err
	}
	ours, err := startReplica(ctx, c, "secrets")
	if err != nil {
		return err
	}
	defer ours.close()
	r := &report{
		name: "secrets",
		heading: fmt.Sprintf("%d secrets of 1 MB that cannot be compressed; client-go's informers, each in a process of its own, that start at the same time. "+
			"Peak is the most that the server's RSS was until all had synced.", n),
		columns: []string{"server", "informers", "steady, MB", "peak, MB", "peak / steady"},
		figure:  figure{title: fmt.Sprintf("%d secrets of 1 MB", n), subjects: []bar{{"Watershed", oursColour}, {"kube-apiserver", clientGoColour}}},
		server:  version,
		part:    n != 200 || isTrial(),
	}
	mine, err := surges(ctx, &ours.server, n)
	if err != nil {
		return err
	}
	theirs, err := surges(ctx, apiServer(c), n)
	if err != nil {
		return err
	}
	for i := range mine {
		p := panel{title: mine[i].String() + ": peak, MB"}
		for k, s := range []surge{mine[i], theirs[i]} {
			r.row(r.figure.subjects[k].name, s.String(), megabytes(float64(s.steady)), megabytes(float64(s.peak)), fmt.Sprintf("%.2f", s.times()))
			p.add(float64(s.peak)/1e6, megabytes(float64(s.peak)))
		}
		r.figure.panels = append(r.figure.panels, p)
	}
	if err := r.write(out); err != nil {
		return err
	}
	// The worse of typed and dynamic counts.
	worst := func(s []surge, informers int) (most float64) {
		for _, one := range s {
			if one.informers == informers {
				most = max(most, one.times())
			}
		}
		return most
	}
	fmt.Fprintf(out, "\nsecrets: steady-mb=%s one=%.2fx five=%.2fx apiserver one=%.2fx five=%.2fx\n",
		megabytes(float64(mine[0].steady)), worst(mine, 1), worst(mine, 5), worst(theirs, 1), worst(theirs, 5))
	return nil
}

// createSecrets makes secrets of random bytes.
func createSecrets(ctx context.Context, c *kubetest.Cluster, n int) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{1})
	for i := range n {
		data := make([]byte, secretBytes)
		_, _ = random.Read(data) // never fails
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%03d", i)}, Data: map[string][]byte{"data": data}}
		if _, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create secret %s: %w", secret.Name, err)
		}
	}
	return nil
}

// String is for tables.
func (s surge) String() string {
	kind := "typed"
	if s.dynamic {
		kind = "dynamic"
	}
	return strconv.Itoa(s.informers) + " " + kind
}

// surges starts one informer and then five, typed ones and dynamic ones.
func surges(ctx context.Context, s *server, secrets int) ([]surge, error) {
	steady, err := s.steady()
	if err != nil {
		return nil, err
	}
	all := []surge{{informers: 1}, {informers: 5}, {informers: 1, dynamic: true}, {informers: 5, dynamic: true}}
	for i := range all {
		one := &all[i]
		one.steady = steady
		if err := one.measure(ctx, s, secrets); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", one, s.name, err)
		}
		if _, err := s.steady(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measure lets informers sync at once.
func (s *surge) measure(ctx context.Context, from *server, secrets int) error {
	readers := make([]*companion, s.informers)
	for i := range readers {
		c, err := startCompanion(ctx, "secrets", "informer", informerTask{At: from.access(), Dynamic: s.dynamic, Secrets: secrets})
		if err != nil {
			return err
		}
		defer c.close()
		readers[i] = c
	}
	var err error
	s.peak, err = from.peak(func() error {
		for _, c := range readers {
			if err := c.tell("sync"); err != nil {
				return err
			}
		}
		for _, c := range readers {
			var got int
			if err := c.answers.Decode(&got); err != nil || got != secrets {
				return fmt.Errorf("an informer has %d secrets: %w", got, err)
			}
		}
		return nil
	})
	return err
}

// beInformer waits for the order, syncs, tells how many secrets it has, and keeps them
// until its input ends.
func beInformer(text []byte, in io.Reader, out io.Writer) error {
	var task informerTask
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	informer, err := newInformer(&task)
	if err != nil {
		return err
	}
	orders := bufio.NewReader(in)
	if _, err := orders.ReadString('\n'); err != nil {
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
	_, err = io.Copy(io.Discard, orders)
	return err
}

func newInformer(task *informerTask) (cache.SharedIndexInformer, error) {
	cfg := task.At.server().cfg
	if task.Dynamic {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(corev1.SchemeGroupVersion.WithResource("secrets")).Informer(), nil
	}
	cfg.ContentType = asProtobuf
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return informers.NewSharedInformerFactory(client, 0).Core().V1().Secrets().Informer(), nil
}

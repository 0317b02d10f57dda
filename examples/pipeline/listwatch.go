// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

type listWatchOptions struct {
	namespace string
	// list means to list first. A watch without a version begins with all existing
	// objects.
	list bool
	// from is the version that the watch begins after, instead of the version of a list.
	from string
	// labels and fields are selectors in kubectl's syntax.
	labels, fields string
	// timeout is how long the server keeps the watch open. 0 means as long as it likes.
	timeout time.Duration
}

// listWatch is the step listwatch: the two requests that everything else is built on, a list
// of the pods of a namespace and a watch of the changes after it. Flags select pods by
// labels and fields, change the parameters of the requests, and continue an earlier watch.
func listWatch() {
	var o listWatchOptions
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.BoolVar(&o.list, "list", true, "list before watching; without it the watch begins with the existing pods")
	flag.StringVar(&o.from, "from", "", "continue after this `version` of an earlier watch, instead of listing")
	flag.StringVar(&o.labels, "l", "", "a `selector` of labels, such as app=web")
	flag.StringVar(&o.fields, "field", "", "a `selector` of fields, such as status.phase=Running")
	flag.DurationVar(&o.timeout, "timeout", 0, "ask the server to end the watch after this `time`, in whole seconds")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return runListWatch(ctx, out, cluster, o)
	})
}

func runListWatch(ctx context.Context, out io.Writer, cluster *kube.Cluster, o listWatchOptions) error {
	query := kube.Query{
		Resource:      corev1.SchemeGroupVersion.WithResource("pods"),
		Namespace:     o.namespace,
		LabelSelector: o.labels,
		FieldSelector: o.fields,
	}
	if o.timeout > 0 {
		// Tweak can set any parameter of the requests.
		query.Tweak = func(parameters *metav1.ListOptions) {
			parameters.TimeoutSeconds = new(int64(o.timeout.Seconds()))
		}
	}
	version := o.from
	if o.list && o.from == "" {
		var err error
		fmt.Fprintln(out, "# list")
		// A name can be read without decoding the pod.
		version, err = cluster.List(ctx, query, func(pod *wire.Object) error {
			fmt.Fprintln(out, pod.Name())
			return nil
		})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
	}
	fmt.Fprintln(out, "# watch")
	for event, err := range cluster.Watch(ctx, query, version) {
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if event.Type == delta.Bookmark {
			// No pod has changed, but a watch that continues after this version misses nothing.
			fmt.Fprintln(out, "BOOKMARK : version", event.Version)
			continue
		}
		pod, err := wire.Decode[*corev1.Pod](event.Object)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		fmt.Fprintln(out, word(event.Type), ":", pod.Name, "-", pod.Status.Phase)
	}
	fmt.Fprintln(out, "# the server ended the watch, as it does now and then: a reflector would begin another")
	return nil
}

// word returns the API server's name of an event type.
func word(t delta.Type) string {
	switch t {
	case delta.Added:
		return "ADDED"
	case delta.Updated:
		return "MODIFIED"
	case delta.Deleted:
		return "DELETED"
	default:
		return fmt.Sprint(t)
	}
}

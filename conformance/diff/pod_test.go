// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// pod is the object of both sides. It has the metadata that client-go needs, a value that
// no other state has, and tags for the indexes.
type pod struct {
	metav1.ObjectMeta
	Value int
	Tags  []string
	// Passes counts transforms.
	Passes int
	// text is the cached result of String.
	text string
}

func newPod(key string, value int, tags ...string) *pod {
	p := &pod{Value: value, Tags: tags}
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		p.Namespace, p.Name = namespace, name
	} else {
		p.Name = key
	}
	p.ResourceVersion = strconv.Itoa(value)
	return p
}

// String returns a text that distinguishes states: "a/1=7", "a/1=7 red,big", "a/1=7 (1
// pass)".
func (p *pod) String() string {
	if p == nil {
		return "nil"
	}
	if p.text != "" {
		return p.text
	}
	var b strings.Builder
	b.WriteString(podKey(p))
	b.WriteByte('=')
	b.WriteString(strconv.Itoa(p.Value))
	if len(p.Tags) > 0 {
		b.WriteByte(' ')
		b.WriteString(strings.Join(p.Tags, ","))
	}
	if p.Passes > 0 {
		b.WriteString(" (" + strconv.Itoa(p.Passes) + " pass)")
	}
	p.text = b.String()
	return p.text
}

// podKey returns the key in the form of client-go's MetaNamespaceKeyFunc.
func podKey(p *pod) string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

func podVersion(p *pod) uint64 { return uint64(p.Value) }

var (
	errNoName    = errors.New("no name")
	errTransform = errors.New("transform refuses")
	errProcess   = errors.New("process refuses")
)

// podKeyFunc is podKey for client-go, which requires an error if there is no key.
func podKeyFunc(obj any) (string, error) {
	if key := podKey(obj.(*pod)); key != "" {
		return key, nil
	}
	return "", errNoName
}

// storeKeyFunc is podKeyFunc for a store that also receives inferred deletions, like
// client-go's DeletionHandlingMetaNamespaceKeyFunc.
func storeKeyFunc(obj any) (string, error) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return d.Key, nil
	}
	return podKeyFunc(obj)
}

// kind reduces an error to the part in which both sides agree.
func kind(err error) string {
	var noKey cache.KeyError
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, delta.ErrNoKey), errors.Is(err, store.ErrNoKey), errors.As(err, &noKey):
		return "no key"
	case strings.Contains(err.Error(), errTransform.Error()):
		return errTransform.Error()
	default:
		return err.Error()
	}
}

// transform returns a transform that marks the pods that it passes, and refuses some if
// strict.
func transform(strict bool) func(*pod) (*pod, error) {
	return func(p *pod) (*pod, error) {
		if strict && p.Value%7 == 0 {
			return nil, errTransform
		}
		q := *p
		q.Passes++
		q.text = ""
		return &q, nil
	}
}

func podsOf(list []any) []*pod {
	pods := make([]*pod, len(list))
	for i, obj := range list {
		pods[i] = obj.(*pod)
	}
	return pods
}

func anyOf(pods []*pod) []any {
	list := make([]any, len(pods))
	for i, p := range pods {
		list[i] = p
	}
	return list
}

// lines returns pods as text, in the given order.
func lines(pods []*pod) string {
	words := make([]string, len(pods))
	for i, p := range pods {
		words[i] = p.String()
	}
	return strings.Join(words, "; ")
}

// sortedLines is lines for client-go, whose lists have no order.
func sortedLines(pods []*pod) string {
	slices.SortFunc(pods, func(a, b *pod) int { return strings.Compare(podKey(a), podKey(b)) })
	return lines(pods)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"slices"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// writes makes some writes while both sides watch.
func (x *informers) writes() {
	for range 1 + x.IntN(5) {
		x.writeAny()
		if x.chance(3) {
			synctest.Wait()
		}
	}
	x.settle()
	x.compare(inOrder)
}

// writeAny creates, changes or deletes one pod.
func (x *informers) writeAny() {
	key := podKeys[x.IntN(len(podKeys))]
	w := x.model
	if w.pods[key] == nil {
		x.write(key)
		return
	}
	switch x.IntN(6) {
	case 0:
		x.remove(key)
	case 1:
		x.remove(key)
		x.write(key)
		x.did.add("pods made anew", 1)
	default:
		x.write(key)
	}
}

func (x *informers) write(key string) {
	field := x.IntN(4)
	p := x.model.write(key, func(p *corev1.Pod) {
		if p.Labels["app"] == "" || field == 0 {
			p.Labels["app"] = apps[x.IntN(len(apps))]
		}
		if p.Labels["tier"] == "" || p.Labels["tier"] == "bad" || field == 1 {
			p.Labels["tier"] = tiers[x.IntN(len(tiers))]
			if x.strict && x.chance(3) {
				p.Labels["tier"] = "bad"
			}
		}
		if field == 2 {
			p.Spec.NodeName = nodes[x.IntN(len(nodes))]
		}
		if field == 3 {
			p.Status.Phase = phases[x.IntN(len(phases))]
		}
	})
	if bad(p) {
		x.did.add("pods refused", 1)
	}
	x.step("write %s", state(p))
}

// known reports whether some state of the pod passed the transform, or ours has an
// earlier pod with the name.
func (x *informers) known(p *corev1.Pod) bool {
	_, has := x.ours.Get(keyOf(p))
	return has || slices.ContainsFunc(x.model.history, func(e event) bool { return e.pod.UID == p.UID && !bad(e.pod) })
}

func bad(p *corev1.Pod) bool { return p.Labels["tier"] == "bad" }

// mend makes a pod pass the transform.
func (x *informers) mend(key string) {
	p := x.model.write(key, func(p *corev1.Pod) { p.Labels["tier"] = tiers[0] })
	x.step("mend %s", state(p))
}

// remove deletes a pod, in a state that passes the transform: client-go loses the
// deletion of a pod that it has if the final state does not pass. See
// TestDifference_refusedDeletion.
func (x *informers) remove(key string) {
	if p := x.model.pods[key]; bad(p) && x.known(p) {
		x.mend(key)
	}
	x.model.remove(key)
	x.step("delete %s", key)
}

// repair makes pods pass the transform if the two sides differ on purpose about refused
// ones, before there is a list: client-go does not accept a list with such a pod, and in
// a stream it treats the pod as deleted. See TestDifference_transformFailureInAList and
// TestDifference_transformFailureKeepsTheLastState.
func (x *informers) repair() {
	for _, key := range podKeys {
		if p := x.model.pods[key]; p != nil && bad(p) && (x.known(p) || !x.model.streaming) {
			x.mend(key)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/table"
)

// now is when the objects of these tests are printed.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// parse reads an object, typed if possible.
func parse(t *testing.T, text string) runtime.Object {
	t.Helper()
	b, err := yaml.ToJSON([]byte("---\n" + text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		obj, _, err = unstructured.UnstructuredJSONScheme.Decode(b, nil, nil)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return obj
}

// line returns a row as one line.
func line(row metav1.TableRow) string {
	var cells []string
	for _, c := range row.Cells {
		cells = append(cells, fmt.Sprint(c))
	}
	return strings.Join(cells, "|")
}

// printed is an object, or the end of one, and its row.
type printed struct{ object, want string }

// testRows prints objects, each with a common prefix before its text.
func testRows(t *testing.T, common string, rows []printed) {
	t.Helper()
	for _, r := range rows {
		obj := parse(t, common+r.object)
		p, ok := table.For(obj.GetObjectKind().GroupVersionKind())
		if !ok {
			t.Fatalf("%s has no printer", obj.GetObjectKind().GroupVersionKind())
		}
		row, err := p.Row(obj, now)
		if err != nil {
			t.Error(err)
		}
		if got := line(row); got != r.want {
			t.Errorf("%s is printed\n%s\nwant\n%s", r.object, got, r.want)
		}
	}
}

func TestRow_ofPods(t *testing.T) {
	const none = "|60m|<none>|<none>|<none>|<none>"
	testRows(t, "{apiVersion: v1, kind: Pod, metadata: {name: a, creationTimestamp: '2026-06-01T11:00:00Z'}, "+
		"spec: {initContainers: [{name: i}, {name: s, restartPolicy: Always}], containers: [{name: a}, {name: b}]}, "+
		"status: ",
		[]printed{
			{"{phase: Pending}}", "a|0/3|Pending|0" + none},
			{"{phase: Failed, reason: Evicted}}", "a|0/3|Evicted|0" + none},
			{"{phase: Pending, podIP: 10.0.0.1}}", "a|0/3|Pending|0|60m|10.0.0.1|<none>|<none>|<none>"},
			{
				"{phase: Pending, conditions: [{type: PodScheduled, reason: SchedulingGated}]}}",
				"a|0/3|SchedulingGated|0" + none,
			},

			{
				"{initContainerStatuses: [{name: i, restartCount: 2, state: {running: {}}, lastState: {terminated: " +
					"{finishedAt: '2026-06-01T11:59:00Z'}}}]}}", "a|0/3|Init:0/2|2 (60s ago)" + none,
			},
			{
				"{initContainerStatuses: [{name: i, state: {waiting: {reason: PodInitializing}}}]}}",
				"a|0/3|Init:0/2|0" + none,
			},
			{
				"{initContainerStatuses: [{name: i, state: {waiting: {reason: ErrImagePull}}}]}}",
				"a|0/3|Init:ErrImagePull|0" + none,
			},
			{
				"{initContainerStatuses: [{name: i, state: {terminated: {exitCode: 5}}}]}}",
				"a|0/3|Init:ExitCode:5|0" + none,
			},
			{
				"{initContainerStatuses: [{name: i, state: {terminated: {exitCode: 5, signal: 9}}}]}}",
				"a|0/3|Init:Signal:9|0" + none,
			},
			{
				"{initContainerStatuses: [{name: i, state: {terminated: {}}}, {name: s, restartCount: 1, state: " +
					"{running: {}}}]}}", "a|0/3|Init:1/2|1" + none,
			},
			{
				"{phase: Running, initContainerStatuses: [{name: i, restartCount: 9, state: {terminated: {}}}, " +
					"{name: s, started: true, ready: true, restartCount: 1, state: {running: {}}}], " +
					"containerStatuses: [{name: a, restartCount: 2}]}}", "a|1/3|Running|3" + none,
			},
			{
				"{phase: Running, conditions: [{type: Initialized, status: 'True'}], initContainerStatuses: [{name: " +
					"i, restartCount: 9}], containerStatuses: [{name: a, restartCount: 2}]}}",
				"a|0/3|Init:0/2|2" + none,
			},

			{
				"{phase: Running, containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}, " +
					"{name: b, ready: true, state: {running: {}}}]}}", "a|1/3|CrashLoopBackOff|0" + none,
			},
			{
				"{containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, " +
					"state: {running: {}}}], conditions: [{type: Ready, status: 'True'}]}}", "a|1/3|Running|0" + none,
			},
			{
				"{containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, ready: true, " +
					"state: {running: {}}}]}}", "a|1/3|NotReady|0" + none,
			},
			{
				"{containerStatuses: [{name: a, state: {terminated: {reason: Completed}}}, {name: b, state: " +
					"{terminated: {exitCode: 1, reason: Error}}}]}}", "a|0/3|Error|0" + none,
			},
			{"{containerStatuses: [{name: a, state: {terminated: {signal: 9}}}]}}", "a|0/3|Signal:9|0" + none},
		})
	const unborn = "|<unknown>|<none>|<none>|<none>|<none>"
	testRows(t, "{apiVersion: v1, kind: Pod, metadata: {name: a, deletionTimestamp: '2026-06-01T11:00:00Z'}, status: ",
		[]printed{
			{"{phase: Running}}", "a|0/0|Terminating|0" + unborn},
			{"{phase: Succeeded}}", "a|0/0|Succeeded|0" + unborn},
			{"{phase: Succeeded, reason: NodeLost}}", "a|0/0|Unknown|0" + unborn},
		})
}

func TestRow_ofNodes(t *testing.T) {
	testRows(t, "{apiVersion: v1, kind: Node, metadata: {name: a, ", []printed{
		{"labels: {}}}", "a|Unknown|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{
			"labels: {node-role.kubernetes.io/b: x, node-role.kubernetes.io/a: '', kubernetes.io/role: a}}, spec: " +
				"{unschedulable: true}, status: {conditions: [{type: Ready, status: 'True'}], nodeInfo: " +
				"{kubeletVersion: v1, architecture: arm64}, addresses: [{type: ExternalIP, address: 1.1.1.1}]}}",
			"a|Ready,SchedulingDisabled|a,b|<unknown>|v1|<none>|1.1.1.1|<unknown>|<unknown> (arm64)|<unknown>",
		},
		{
			"labels: {}}, status: {conditions: [{type: Ready, status: Unknown}]}}",
			"a|NotReady|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>",
		},
	})
}

func TestRow_ofServices(t *testing.T) {
	testRows(t, "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {", []printed{
		{"type: ClusterIP, clusterIPs: [None]}}", "a|ClusterIP|None|<none>|<none>|<unknown>|<none>"},
		{
			"type: NodePort, externalIPs: [1.1.1.1, 2.2.2.2], ports: [{port: 80, nodePort: 30080, protocol: TCP}, " +
				"{port: 53, protocol: UDP}]}}",
			"a|NodePort|<none>|1.1.1.1,2.2.2.2|80:30080/TCP,53/UDP|<unknown>|<none>",
		},
		{"type: LoadBalancer}}", "a|LoadBalancer|<none>|<pending>|<none>|<unknown>|<none>"},
		{
			"type: LoadBalancer, externalIPs: [1.1.1.1]}, status: {loadBalancer: {ingress: [{hostname: b}, {ip: " +
				"9.9.9.9, hostname: a}, {}]}}}", "a|LoadBalancer|<none>|9.9.9.9,b,1.1.1.1|<none>|<unknown>|<none>",
		},
		{
			"type: ExternalName, externalName: b.example.com}}",
			"a|ExternalName|<none>|b.example.com|<none>|<unknown>|<none>",
		},
		{"type: Odd}}", "a|Odd|<none>|<unknown>|<none>|<unknown>|<none>"},
	})
}

func TestRow_ofJobs(t *testing.T) {
	testRows(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, ", []printed{
		{"spec: {}}", "a|Running|0/1||<unknown>|||<none>"},
		{"spec: {parallelism: 3}}", "a|Running|0/1 of 3||<unknown>|||<none>"},
		{
			"spec: {completions: 5, parallelism: 3}, status: {succeeded: 2, startTime: '2026-06-01T11:50:30Z'}}",
			"a|Running|2/5|9m30s|<unknown>|||<none>",
		},
		{
			"status: {startTime: '2026-06-01T02:00:00Z', completionTime: '2026-06-01T05:30:00Z', conditions: [{type: " +
				"Complete, status: 'True'}]}}", "a|Complete|0/1|3h30m|<unknown>|||<none>",
		},
		{
			"status: {conditions: [{type: Complete, status: 'False'}, {type: Suspended, status: 'True'}]}}",
			"a|Suspended|0/1||<unknown>|||<none>",
		},
	})
}

func TestRow_ofVolumes(t *testing.T) {
	testRows(t, "apiVersion: v1\nkind: ", []printed{
		{
			"PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1Gi}}}\nstatus: " +
				"{phase: Pending, capacity: {storage: 2Gi}}", "a|Pending|||||<unset>|<unknown>|<unset>",
		},
		{
			"PersistentVolumeClaim\nmetadata: {name: a, annotations: {volume.beta.kubernetes.io/storage-class: " +
				"old}}\nspec: {volumeName: v, storageClassName: new, volumeMode: Block}\nstatus: {phase: Bound, " +
				"accessModes: [ReadWriteMany, ReadWriteOnce, ReadWriteMany], capacity: {storage: 2Gi}}",
			"a|Bound|v|2Gi|RWO,RWX|old|<unset>|<unknown>|Block",
		},
		{
			"PersistentVolume\nmetadata: {name: a, deletionTimestamp: '2026-06-01T11:00:00Z'}\nspec: {capacity: " +
				"{storage: 1500M}, claimRef: {namespace: ns, name: c}}\nstatus: {phase: Bound}",
			"a|1500M|||Terminating|ns/c||<unset>||<unknown>|<unset>",
		},
	})
}

func TestRow_ofEvents(t *testing.T) {
	testRows(t, "metadata: {name: a}\nkind: Event\n", []printed{
		{"apiVersion: v1\ninvolvedObject: {kind: Pod}", "<unknown>|||pod||||<unknown>|1|a"},
		{
			"apiVersion: v1\ninvolvedObject: {kind: Pod, name: p, fieldPath: f}\ncount: 3\nfirstTimestamp: " +
				"'2026-06-01T10:00:00Z'\nlastTimestamp: '2026-06-01T11:59:00Z'\nsource: {component: c, host: " +
				"h}\nmessage: ' m '", "60s|||pod/p|f|c, h|m|120m|3|a",
		},
		{
			"apiVersion: events.k8s.io/v1\nregarding: {kind: Pod, name: p}\neventTime: " +
				"'2026-06-01T11:59:30.000000Z'\nreportingController: c\nnote: text", "30s|||pod/p||c|text|30s|1|a",
		},
		{
			"apiVersion: events.k8s.io/v1\neventTime: '2026-06-01T11:00:00.000000Z'\nseries: {count: 4, " +
				"lastObservedTime: '2026-06-01T11:59:30.000000Z'}", "30s|||||||60m|4|a",
		},
	})
}

func TestRow_ofIngresses(t *testing.T) {
	testRows(t, "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}, spec: ", []printed{
		{"{}}", "a|<none>|*||80|<unknown>"},
		{
			"{ingressClassName: c, tls: [{}], rules: [{host: a}, {host: b}, {}, {host: c}]}}",
			"a|c|a,b,c||80, 443|<unknown>",
		},
		{"{rules: [{host: a}, {host: b}, {host: c}, {}, {host: d}]}}", "a|<none>|a,b,c + 2 more...||80|<unknown>"},
	})
}

func TestRow_ofAutoscalers(t *testing.T) {
	const memory = `[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]`
	const current = `[{"type":"Resource","resource":{"name":"memory","currentAverageValue":"512Mi"}},{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":50,"currentAverageValue":"1"}}]`
	testRows(t, "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 3, "+
		"targetCPUUtilizationPercentage: 70, scaleTargetRef: {kind: D, name: d}}\nmetadata:\n  name: a\n", []printed{
		{"status: {currentCPUUtilizationPercentage: 60}", "a|D/d|cpu: 60%/70%|<unset>|3|0|<unknown>"},
		{
			"  annotations: {autoscaling.alpha.kubernetes.io/metrics: '" + memory + "'}",
			"a|D/d|cpu: <unknown>/70%, memory: <unknown>/1Gi|<unset>|3|0|<unknown>",
		},
		{
			"  annotations: {autoscaling.alpha.kubernetes.io/metrics: '" + memory +
				"', autoscaling.alpha.kubernetes.io/current-metrics: '" + current + "'}",
			"a|D/d|memory: 512Mi/1Gi, cpu: 50%/70%|<unset>|3|0|<unknown>",
		},
		{
			"  annotations: {autoscaling.alpha.kubernetes.io/metrics: nonsense}",
			"a|D/d|cpu: <unknown>/70%|<unset>|3|0|<unknown>",
		},
	})
	testRows(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: "+
		"{scaleTargetRef: {kind: D, name: d}, metrics: ", []printed{
		{"[]}}", "a|D/d|<none>|<unset>|0|0|<unknown>"},
		{
			"[{type: Odd}, {type: Pods}, {type: External}]}}",
			"a|D/d|<unknown type>, <unknown type> + 1 more...|<unset>|0|0|<unknown>",
		},
	})
}

func TestRow_ofDefinitions(t *testing.T) {
	const definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, " +
		"creationTimestamp: '2026-06-01T11:00:00Z'}"
	testRows(t, definition, []printed{
		{"}", "a|||2026-06-01T11:00:00Z||||false"},
		{
			", spec: {scope: Cluster, group: g, names: {kind: K, shortNames: [a, b]}, versions: [{name: v2, served: " +
				"true}, {name: v1, served: true, storage: true}, {name: v0}]}, status: {conditions: [{type: " +
				"Established, status: 'True'}]}}",
			"a|Cluster|v1(storage),v2|2026-06-01T11:00:00Z|g|K|a,b|true",
		},
		{", spec: {versions: [nonsense]}, status: nonsense}", "a|||2026-06-01T11:00:00Z||||false"},
	})
	testRows(t, "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: a}, ", []printed{
		{"spec: {}}", "a|Local|Unknown|<unknown>"},
		{
			"spec: {service: {namespace: ns, name: s}}, status: {conditions: [{type: Available, status: 'False', " +
				"reason: Gone}]}}", "a|ns/s|False (Gone)|<unknown>",
		},
	})
}

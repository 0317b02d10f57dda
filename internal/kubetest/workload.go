// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Workload describes pods that look like those of a busy cluster: ten of each deployment,
// each with two containers, probes, volumes, a full status and managed fields; about 7.8
// KB as JSON and 4.8 KB as protobuf. The same workload always has the same pods.
type Workload struct {
	// Seed makes ids, addresses and images differ between workloads. Names do
	// not depend on it.
	Seed uint64

	// Namespaces is the number of namespaces of the pods. Default: 100.
	Namespaces int
}

const (
	podsPerApp    = 10
	workloadNodes = 500
)

// workloadStart is when the oldest pod was created.
var workloadStart = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

// Namespace returns the namespace of pod i.
func (w Workload) Namespace(i int) *corev1.Namespace {
	name := w.namespace(i)
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               uid(rand.New(rand.NewPCG(w.Seed, ^uint64(w.namespaceIndex(i))))),
			CreationTimestamp: metav1.NewTime(workloadStart),
			Labels:            map[string]string{corev1.LabelMetadataName: name},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

func (w Workload) namespaceIndex(i int) int {
	n := w.Namespaces
	if n == 0 {
		n = 100
	}
	return i / podsPerApp % n
}

func (w Workload) namespace(i int) string {
	return fmt.Sprintf("team-%03d", w.namespaceIndex(i))
}

// Pod returns pod i, any number from 0 up.
func (w Workload) Pod(i int) *corev1.Pod {
	app := fmt.Sprintf("service-%05d", i/podsPerApp)
	owner := rand.New(rand.NewPCG(w.Seed, uint64(i/podsPerApp)<<32))
	own := rand.New(rand.NewPCG(w.Seed, uint64(i)))
	names := rand.New(rand.NewPCG(0, uint64(i)))
	made := metav1.NewTime(workloadStart.Add(time.Duration(i) * time.Second))
	replicaSet := app + "-" + suffix(rand.New(rand.NewPCG(0, uint64(i/podsPerApp)<<32)), 10)
	isController := true

	labels := map[string]string{
		"app.kubernetes.io/name":       app,
		"app.kubernetes.io/instance":   app + "-production",
		"app.kubernetes.io/component":  []string{"api", "worker", "frontend"}[i/podsPerApp%3],
		"app.kubernetes.io/managed-by": "deployer",
		"team":                         w.namespace(i),
		"pod-template-hash":            replicaSet[len(app)+1:],
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              replicaSet + "-" + suffix(names, 4) + letters[i%podsPerApp:][:1],
			GenerateName:      replicaSet + "-",
			Namespace:         w.namespace(i),
			UID:               uid(own),
			Generation:        1,
			CreationTimestamp: made,
			Labels:            labels,
			Annotations: map[string]string{
				"prometheus.io/scrape":  "true",
				"prometheus.io/port":    "9090",
				"example.com/checksum":  hexadecimal(owner, 32),
				"example.com/cost-unit": fmt.Sprintf("cu-%04d", owner.IntN(10000)),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet, UID: uid(owner),
				Controller: &isController, BlockOwnerDeletion: &isController,
			}},
			ManagedFields: managedFields(made),
		},
		Spec:   podSpec(app, owner),
		Status: podStatus(made, own),
	}
	pod.Spec.NodeName = fmt.Sprintf("node-%d", own.IntN(workloadNodes))
	for c, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses[c].Name = container.Name
		pod.Status.ContainerStatuses[c].Image = container.Image
		pod.Status.ContainerStatuses[c].ImageID = "registry.example/" + container.Name + "@sha256:" +
			hexadecimal(owner, 32)
	}
	return pod
}

func podSpec(app string, r *rand.Rand) corev1.PodSpec {
	grace, noLinks, mode := int64(30), true, int32(0o644)
	expires := int64(3607)
	return corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"}, DefaultMode: &mode}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "kube-api-access-" + suffix(r, 5),
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					DefaultMode: &mode,
					Sources: []corev1.VolumeProjection{
						{
							ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expires,
								Path: "token"},
						},
						{ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
							Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
					}}}},
		},
		Containers: []corev1.Container{
			container("main", "registry.example/"+app+":"+version(r), app, 8080, 8, "500m", "512Mi"),
			container("metrics", "registry.example/metrics-sidecar:2.14.1", app, 9090, 0, "50m", "64Mi"),
		},
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: &grace,
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            app,
		DeprecatedServiceAccount:      app,
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: &noLinks},
		SchedulerName:                 corev1.DefaultSchedulerName,
		EnableServiceLinks:            &noLinks,
		Tolerations: []corev1.Toleration{
			{
				Key:               corev1.TaintNodeNotReady,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(300)),
			},
			{
				Key:               corev1.TaintNodeUnreachable,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(300)),
			},
		},
	}
}

func container(name, image, app string, port int32, env int, cpu, memory string) corev1.Container {
	request := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
	c := corev1.Container{
		Name:  name,
		Image: image,
		Args:  []string{"--listen=:" + fmt.Sprint(port), "--config=/etc/" + app + "/config.yaml", "--log-format=json"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: request,
			Limits:   corev1.ResourceList{corev1.ResourceMemory: request[corev1.ResourceMemory]},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/" + app, ReadOnly: true},
			{Name: "scratch", MountPath: "/tmp"},
		},
		LivenessProbe:            probe("/healthz", port, 10),
		ReadinessProbe:           probe("/readyz", port, 5),
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ImagePullPolicy:          corev1.PullIfNotPresent,
	}
	for e := range env {
		v := corev1.EnvVar{Name: fmt.Sprintf("SERVICE_SETTING_%d", e), Value: fmt.Sprintf("%s-%d.example.com", app, e)}
		switch e {
		case 0:
			v = corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}
		case 1:
			v = corev1.EnvVar{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: app + "-database"}, Key: "password"}}}
		}
		c.Env = append(c.Env, v)
	}
	return c
}

func probe(path string, port int32, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: 5, TimeoutSeconds: 2, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

func podStatus(made metav1.Time, r *rand.Rand) corev1.PodStatus {
	later := metav1.NewTime(made.Add(4 * time.Second))
	ip := fmt.Sprintf("10.%d.%d.%d", 64+r.IntN(64), r.IntN(256), 1+r.IntN(254))
	host := fmt.Sprintf("192.168.%d.%d", r.IntN(256), 1+r.IntN(254))
	s := corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		HostIP:             host,
		HostIPs:            []corev1.HostIP{{IP: host}},
		PodIP:              ip,
		PodIPs:             []corev1.PodIP{{IP: ip}},
		StartTime:          &made,
		QOSClass:           corev1.PodQOSBurstable,
	}
	for _, t := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue, LastTransitionTime: later, ObservedGeneration: 1})
	}
	for range 2 {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Ready:       true,
			Started:     new(true),
			ContainerID: "containerd://" + hexadecimal(r, 32),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: later}},
		})
	}
	return s
}

func version(r *rand.Rand) string {
	return fmt.Sprintf("%d.%d.%d", 1+r.IntN(5), r.IntN(40), r.IntN(20))
}

func uid(r *rand.Rand) types.UID {
	h := hexadecimal(r, 16)
	return types.UID(h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:])
}

func hexadecimal(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return hex.EncodeToString(b)
}

// letters are the letters that Kubernetes uses in generated names: no vowels, so no
// words.
const letters = "bcdfghjklmnpqrstvwxz2456789"

func suffix(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func ingressColumns() []column {
	return []column{
		nameColumn,
		text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
		text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
		text("Address", "Address is a list containing ingress points for the load-balancer"),
		text("Ports", "Ports of TLS configurations that open"),
		ageColumn,
	}
}

func ingressCells(ingress *networkingv1.Ingress, now time.Time) []any {
	var points []string
	for _, p := range ingress.Status.LoadBalancer.Ingress {
		points = append(points, or(p.IP, p.Hostname))
	}
	ports := "80"
	if len(ingress.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		ingress.Name, deref(ingress.Spec.IngressClassName, none), ingressHosts(ingress.Spec.Rules), uniqueSorted(points),
		ports, age(ingress.CreationTimestamp, now),
	}
}

// ingressHosts returns the hosts of the first rules. If there are more, the remaining
// rules are counted, with or without a host.
func ingressHosts(rules []networkingv1.IngressRule) string {
	const shown = 3
	var hosts []string
	for i := range rules {
		if len(hosts) == shown {
			return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), len(rules)-shown)
		}
		if host := rules[i].Host; host != "" {
			hosts = append(hosts, host)
		}
	}
	return or(strings.Join(hosts, ","), "*")
}

func ingressClassColumns() []column {
	return []column{
		nameColumn,
		text("Controller", "Controller that is responsible for handling this class"),
		text("Parameters", "A reference to a resource with additional parameters"),
		ageColumn,
	}
}

func ingressClassCells(o *networkingv1.IngressClass, now time.Time) []any {
	name := o.Name
	if o.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
		name += " (default)"
	}
	parameters := none
	if p := o.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, o.Spec.Controller, parameters, age(o.CreationTimestamp, now)}
}

func networkPolicyColumns() []column {
	return []column{nameColumn, text("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), ageColumn}
}

func networkPolicyCells(o *networkingv1.NetworkPolicy, now time.Time) []any {
	return []any{o.Name, metav1.FormatLabelSelector(&o.Spec.PodSelector), age(o.CreationTimestamp, now)}
}

func serviceCIDRColumns() []column {
	return []column{nameColumn, text("CIDRs", networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]), ageColumn}
}

func serviceCIDRCells(o *networkingv1.ServiceCIDR, now time.Time) []any {
	return []any{o.Name, strings.Join(o.Spec.CIDRs, ","), age(o.CreationTimestamp, now)}
}

func ipAddressColumns() []column {
	return []column{nameColumn, text("ParentRef", networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"])}
}

// ipAddressCells returns one cell more than there are columns, as kube-apiserver does.
func ipAddressCells(o *networkingv1.IPAddress, now time.Time) []any {
	return []any{o.Name, parent(o.Spec.ParentRef), age(o.CreationTimestamp, now)}
}

func parent(ref *networkingv1.ParentReference) string {
	if ref == nil {
		return none
	}
	resource := schema.GroupResource{Group: ref.Group, Resource: ref.Resource}
	s := strings.ToLower(resource.String())
	if ref.Namespace != "" {
		s += "/" + ref.Namespace
	}
	return s + "/" + ref.Name
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
		ingress.Name, deref(ingress.Spec.IngressClassName, none), ingressHosts(ingress.Spec.Rules),
		uniqueSorted(points),
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
	return []column{
		nameColumn, text("Pod-Selector", networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"]), ageColumn,
	}
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

func serviceColumns() []column {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("Type", doc["type"]),
		text("Cluster-IP", doc["clusterIP"]),
		text("External-IP", doc["externalIPs"]),
		text("Port(s)", doc["ports"]),
		ageColumn,
		wide(text("Selector", doc["selector"])),
	}
}

func serviceCells(service *corev1.Service, now time.Time) []any {
	clusterIP := none
	if ips := service.Spec.ClusterIPs; len(ips) > 0 {
		clusterIP = ips[0]
	}
	return []any{
		service.Name, string(service.Spec.Type), clusterIP, externalIP(service), or(servicePorts(service), none),
		age(service.CreationTimestamp, now), labels.FormatLabels(service.Spec.Selector),
	}
}

func externalIP(service *corev1.Service) string {
	external := strings.Join(service.Spec.ExternalIPs, ",")
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return or(external, none)
	case corev1.ServiceTypeLoadBalancer:
		var points []string
		for _, p := range service.Status.LoadBalancer.Ingress {
			points = append(points, or(p.IP, p.Hostname))
		}
		balanced := uniqueSorted(points)
		if balanced != "" && external != "" {
			balanced += ","
		}
		return or(balanced+external, "<pending>")
	case corev1.ServiceTypeExternalName:
		return service.Spec.ExternalName
	}
	return unknown
}

func servicePorts(service *corev1.Service) string {
	var b strings.Builder
	for i := range service.Spec.Ports {
		if i > 0 {
			b.WriteByte(',')
		}
		p := &service.Spec.Ports[i]
		b.WriteString(strconv.Itoa(int(p.Port)))
		if p.NodePort > 0 {
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(int(p.NodePort)))
		}
		b.WriteByte('/')
		b.WriteString(string(p.Protocol))
	}
	return b.String()
}

// shownEndpoints is how many endpoints and ports a cell shows.
const shownEndpoints = 3

func endpointsColumns() []column {
	description := corev1.Endpoints{}.SwaggerDoc()["subsets"] //nolint:staticcheck // deprecated, but served
	return []column{nameColumn, text("Endpoints", description), ageColumn}
}

//nolint:staticcheck // deprecated, but served
func endpointsCells(o *corev1.Endpoints, now time.Time) []any {
	if len(o.Subsets) == 0 {
		return []any{o.Name, none, age(o.CreationTimestamp, now)}
	}
	var shown []string
	count := 0
	for i := range o.Subsets {
		s := &o.Subsets[i]
		count += len(s.Addresses) * max(len(s.Ports), 1)
		for _, p := range s.Ports {
			port := strconv.Itoa(int(p.Port))
			for j := range s.Addresses[:min(len(s.Addresses), shownEndpoints-len(shown))] {
				shown = append(shown, net.JoinHostPort(s.Addresses[j].IP, port))
			}
		}
		if len(s.Ports) > 0 {
			continue
		}
		// A headless service may have no ports.
		for j := range s.Addresses[:min(len(s.Addresses), shownEndpoints-len(shown))] {
			shown = append(shown, s.Addresses[j].IP)
		}
	}
	return []any{o.Name, clip(shown, ",", count), age(o.CreationTimestamp, now)}
}

func endpointSliceColumns() []column {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return []column{
		nameColumn,
		text("AddressType", doc["addressType"]),
		text("Ports", doc["ports"]),
		text("Endpoints", doc["endpoints"]),
		ageColumn,
	}
}

func endpointSliceCells(o *discoveryv1.EndpointSlice, now time.Time) []any {
	return []any{
		o.Name, string(o.AddressType), slicePorts(o.Ports), sliceAddresses(o.Endpoints), age(o.CreationTimestamp, now),
	}
}

func slicePorts(ports []discoveryv1.EndpointPort) string {
	var shown []string
	for i := range ports[:min(len(ports), shownEndpoints)] {
		port := "*"
		switch p := &ports[i]; {
		case p.Port != nil:
			port = strconv.Itoa(int(*p.Port))
		case p.Name != nil:
			port = *p.Name
		}
		shown = append(shown, port)
	}
	return or(clip(shown, ",", len(ports)), unset)
}

func sliceAddresses(endpoints []discoveryv1.Endpoint) string {
	var shown []string
	count := 0
	for i := range endpoints {
		addresses := endpoints[i].Addresses
		count += len(addresses)
		shown = append(shown, addresses[:min(len(addresses), shownEndpoints-len(shown))]...)
	}
	return or(clip(shown, ",", count), unset)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// bySecret is the index of sites by the secret that they use.
const bySecret = "spec.secret"

// checksumAnnotation causes a rollout when the secret changes.
const checksumAnnotation = "example.watershed.dev/secret"

// siteReconciler maintains the Deployments of Sites. It reads only from the manager's
// cache: sites, deployments, and every secret and pod of the cluster.
type siteReconciler struct{ client client.Client }

// setUp registers the index and the watches.
func (r *siteReconciler) setUp(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &Site{}, bySecret, func(o client.Object) []string {
		return []string{o.(*Site).Spec.Secret}
	})
	if err != nil {
		return fmt.Errorf("index sites: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Site{}).
		Owns(&appsv1.Deployment{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.sitesOf)).
		Complete(r)
}

// sitesOf returns requests for the sites that use a secret.
func (r *siteReconciler) sitesOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var sites SiteList
	if err := r.client.List(ctx, &sites, client.InNamespace(secret.GetNamespace()),
		client.MatchingFields{bySecret: secret.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the sites of a secret", "secret", client.ObjectKeyFromObject(secret))
		return nil
	}
	requests := make([]reconcile.Request, len(sites.Items))
	for i := range sites.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&sites.Items[i])
	}
	return requests
}

// staleRetry is when a site is reconciled again whose objects in the cache were older than
// those of the API server.
const staleRetry = 100 * time.Millisecond

// Reconcile implements [reconcile.Reconciler].
func (r *siteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	err := r.reconcile(ctx, req)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil // any cache is a moment behind: this is not an error
	}
	return ctrl.Result{}, err
}

func (r *siteReconciler) reconcile(ctx context.Context, req ctrl.Request) error {
	var site Site
	if err := r.client.Get(ctx, req.NamespacedName, &site); err != nil {
		return client.IgnoreNotFound(err)
	}
	var secret corev1.Secret
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: site.Namespace, Name: site.Spec.Secret},
		&secret); err != nil {
		return client.IgnoreNotFound(err) // the creation of the secret triggers another reconcile
	}
	sum := checksum(&secret)

	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, deployment, func() error {
		r.describe(deployment, &site, sum)
		return controllerutil.SetControllerReference(&site, deployment, r.client.Scheme())
	})
	if err != nil {
		return fmt.Errorf("deployment of site %s: %w", req, err)
	}

	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(site.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": site.Name}); err != nil {
		return fmt.Errorf("pods of site %s: %w", req, err)
	}
	status := SiteStatus{Checksum: sum, Pods: len(pods.Items)}
	if site.Status == status {
		return nil
	}
	site.Status = status
	return r.client.Status().Update(ctx, &site)
}

// describe sets the fields of a deployment that the site determines.
func (r *siteReconciler) describe(d *appsv1.Deployment, site *Site, sum string) {
	labels := map[string]string{"site": site.Name}
	d.Spec.Replicas = &site.Spec.Replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Annotations = map[string]string{checksumAnnotation: sum}
	if len(d.Spec.Template.Spec.Containers) == 0 {
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "site"}}
	}
	d.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
}

// checksum returns the checksum of a secret's content.
func checksum(s *corev1.Secret) string {
	h := sha256.New()
	var keys []string
	for key := range s.Data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		fmt.Fprintf(h, "%s=%d:", key, len(s.Data[key]))
		h.Write(s.Data[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package table

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

func jobColumns() []column {
	return append([]column{
		nameColumn,
		text("Status", "Status of the job."),
		text("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
		text("Duration", "Time required to complete the job."),
		ageColumn,
	}, templateColumns(batchv1.JobSpec{}.SwaggerDoc()["selector"])...)
}

func cronJobColumns() []column {
	spec := batchv1.CronJobSpec{}.SwaggerDoc()
	status := batchv1.CronJobStatus{}.SwaggerDoc()
	return append([]column{
		nameColumn,
		text("Schedule", spec["schedule"]),
		text("Timezone", spec["timeZone"]),
		boolean("Suspend", spec["suspend"]),
		integer("Active", status["active"]),
		text("Last Schedule", status["lastScheduleTime"]),
		ageColumn,
	}, templateColumns(batchv1.JobSpec{}.SwaggerDoc()["selector"])...)
}

func jobCells(job *batchv1.Job, now time.Time) []any {
	names, images := containers(job.Spec.Template.Spec.Containers)
	return []any{
		job.Name, jobStatus(job), jobCompletions(job), jobDuration(job, now), age(job.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(job.Spec.Selector),
	}
}

func jobStatus(job *batchv1.Job) string {
	switch {
	case jobCondition(job, batchv1.JobComplete):
		return "Complete"
	case jobCondition(job, batchv1.JobFailed):
		return "Failed"
	case job.DeletionTimestamp != nil:
		return "Terminating"
	case jobCondition(job, batchv1.JobSuspended):
		return "Suspended"
	case jobCondition(job, batchv1.JobFailureTarget):
		return "FailureTarget"
	case jobCondition(job, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// jobCondition reports whether the first condition of a type is true.
func jobCondition(job *batchv1.Job, t batchv1.JobConditionType) bool {
	i := slices.IndexFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t })
	return i >= 0 && job.Status.Conditions[i].Status == corev1.ConditionTrue
}

// jobCompletions returns how many pods succeeded, of how many. If no number is set, one
// success is enough, of any number that run in parallel.
func jobCompletions(job *batchv1.Job) string {
	s := ratio(job.Status.Succeeded, deref(job.Spec.Completions, 1))
	if parallel := deref(job.Spec.Parallelism, 0); job.Spec.Completions == nil && parallel > 1 {
		s += " of " + strconv.Itoa(int(parallel))
	}
	return s
}

func jobDuration(job *batchv1.Job, now time.Time) string {
	start, end := job.Status.StartTime, job.Status.CompletionTime
	switch {
	case start == nil:
		return ""
	case end == nil:
		return duration.HumanDuration(now.Sub(start.Time))
	}
	return duration.HumanDuration(end.Sub(start.Time))
}

func cronJobCells(o *batchv1.CronJob, now time.Time) []any {
	suspended := unset
	if s := o.Spec.Suspend; s != nil {
		suspended = "False"
		if *s {
			suspended = "True"
		}
	}
	last := none
	if t := o.Status.LastScheduleTime; t != nil {
		last = age(*t, now)
	}
	job := &o.Spec.JobTemplate.Spec
	names, images := containers(job.Template.Spec.Containers)
	return []any{
		o.Name, o.Spec.Schedule, deref(o.Spec.TimeZone, none), suspended, int64(len(o.Status.Active)), last,
		age(o.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(job.Selector),
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// reportEvery is how often the same trouble is logged as a warning. In between it is
	// logged at level debug.
	reportEvery = time.Minute
	// maxCause is how many bytes of an error of another server are logged.
	maxCause = 512
)

// The messages that callers see. They do not contain addresses or errors of other servers.
const (
	reviewUnavailable = "the cluster could not check the token; try again"
	reviewForbidden   = "the replica may not check tokens in this cluster: its credentials lack the right create " +
		"tokenreviews.authentication.k8s.io"
	reviewIndistinct = "the replica may not check tokens in this cluster, and its address does not tell callers " +
		"apart by their tokens: it leads to a proxy that adds credentials, or is not one of https"
	authorityUnavailable = "the cluster's certificate authority for clients could not be read; try again"
	authorityForbidden   = "the replica may not read the certificate authority for clients of this cluster: its " +
		"credentials lack the right get configmaps/extension-apiserver-authentication in namespace kube-system"
	issuerUnavailable = "the keys of the token's issuer could not be read; try again"
	tooManyUnknown    = "too many unknown tokens; try again later"
)

// unauthorized returns the 401 of kube-apiserver. It does not contain the cause.
func unauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

// unavailable returns a 503 that clients of Kubernetes repeat after a second.
func unavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// tooMany returns a 429 that clients of Kubernetes repeat after a second.
func tooMany() error { return apierrors.NewTooManyRequests(tooManyUnknown, 1) }

// journal logs the causes that callers do not see. It holds one time for each message, of
// which there are a constant number.
type journal struct {
	logger *slog.Logger

	mu   sync.Mutex
	last map[string]time.Time
}

func newJournal(logger *slog.Logger) *journal {
	return &journal{logger: cmp.Or(logger, slog.Default()), last: map[string]time.Time{}}
}

// report logs a message with its cause: as a warning if the last one is reportEvery ago,
// else at level debug.
func (j *journal) report(message, cause string) {
	if len(cause) > maxCause {
		cause = cause[:maxCause] + "..."
	}
	now := time.Now()
	level := slog.LevelDebug
	j.mu.Lock()
	if last, ok := j.last[message]; !ok || now.Sub(last) >= reportEvery {
		j.last[message] = now
		level = slog.LevelWarn
	}
	j.mu.Unlock()
	j.logger.Log(context.Background(), level, message, "err", cause) //nolint:sloglint // callers pass constants
}

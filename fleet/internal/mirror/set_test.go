// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
)

func TestUnknown_isWhatDiscoveryCouldNotSay(t *testing.T) {
	apps := &kube.GroupError{GroupVersion: schema.GroupVersion{Group: "apps", Version: "v1"}, Err: kube.ErrStale}
	other := &kube.GroupError{
		GroupVersion: schema.GroupVersion{Group: "example.com", Version: "v1"},
		Err:          kube.ErrStale,
	}
	in := func(group string) schema.GroupResource { return schema.GroupResource{Group: group, Resource: "x"} }
	for _, tt := range []struct {
		name    string
		missing error
		group   string
		want    bool
	}{
		{"nothing is missing", nil, "apps", false},
		{"its group", apps, "apps", true},
		{"another group", apps, "batch", false},
		{"one of several", errors.Join(errors.Join(other), errors.Join(apps)), "apps", true},
		{"none of several", errors.Join(other, apps), "batch", false},
		{"one half of discovery", errors.Join(errors.New("connection reset"), apps), "batch", true},
	} {
		if got := unknown(in(tt.group), tt.missing); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package protobuf_test

import (
	"reflect"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// scan reads a ScaleStatus, which has one number and one string, with the scanner.
func scan(raw []byte) (s autoscalingv1.ScaleStatus, ok bool) {
	p := protobuf.Scanner{Data: raw}
	for p.Next() {
		switch p.Field {
		case 1:
			s.Replicas = int32(p.Varint())
		case 2:
			s.Selector = string(p.Bytes())
		}
	}
	return s, !p.Bad
}

// FuzzScanner compares the scanner with generated code: both read the same or both fail.
func FuzzScanner(f *testing.F) {
	whole, err := (&autoscalingv1.ScaleStatus{Replicas: 300, Selector: "app=a"}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(whole, whole...))
	for _, raw := range []string{
		"", "\x12", "\x12\x05ab", "\x12\x80\x00", "\x92\x00\x01a", "\x10\x01", "\x0a\x01", "\x02\x00", "\x0c",
		"\x0b\x0c", "\x0f\x00",
		"\x08", "\x08\x80", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x9b\x06\x08\x01\x9c\x06", "\x9b\x06\x0b\x0c\x9c\x06", "\x9b\x06", "\x9c\x06",
		"\x99\x06\x01\x02\x03\x04\x05\x06\x07\x08", "\x9d\x06\x01\x02\x03\x04", "\x9d\x06\x01",
		"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xfa\xff\xff\xff\xff\x01\x00",
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want autoscalingv1.ScaleStatus
		wantErr := want.Unmarshal(raw)
		got, ok := scan(raw)
		if ok != (wantErr == nil) {
			t.Fatalf("the scanner accepts it: %t; the error of the generated code: %v", ok, wantErr)
		}
		if ok && got != want {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestTag(t *testing.T) {
	for name, want := range map[string]struct {
		format string
		number int
	}{"Name": {"bytes", 1}, "Generation": {"varint", 7}} {
		field, _ := reflect.TypeFor[metav1.ObjectMeta]().FieldByName(name)
		if format, number := protobuf.Tag(field); format != want.format || number != want.number {
			t.Errorf("%s is %s, %d, want %v", name, format, number, want)
		}
	}
	untagged, _ := reflect.TypeFor[protobuf.Scanner]().FieldByName("At")
	if _, number := protobuf.Tag(untagged); number != 0 {
		t.Errorf("a field without a tag has the number %d", number)
	}
}

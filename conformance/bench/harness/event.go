// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"encoding/binary"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

// EncodeEvent returns an event of a pod as [EncodeObjectEvent] does. It sets the kind of
// the pod.
func EncodeEvent(kind watch.EventType, p *corev1.Pod) ([]byte, error) {
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return EncodeObjectEvent(kind, p)
}

// EncodeObjectEvent returns an event as a frame of a watch in protobuf, with its length in
// front, as an API server writes it. The object must have its kind.
func EncodeObjectEvent(kind watch.EventType, o runtime.Object) ([]byte, error) {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object.Bytes()}}
	data, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// DecodeWatch decodes the frames of a watch in protobuf with the decoders that
// client-go's REST client uses.
func DecodeWatch(body io.ReadCloser) watch.Interface {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	frames := info.StreamSerializer.NewFrameReader(body)
	objects := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)
	return watch.NewStreamWatcher(restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), objects), nil)
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// maxObject limits the bytes of a request that creates an object. The objects are small, and
// nothing is stored.
const maxObject = 64 << 10

// only knows one kind of objects. It is a [runtime.ObjectCreater] and [runtime.ObjectTyper]
// for serializers.
type only struct {
	kind schema.GroupVersionKind
	into runtime.Object
}

// New implements [runtime.ObjectCreater].
func (o only) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind != o.kind {
		return nil, o.unknown(kind)
	}
	return o.into, nil
}

// ObjectKinds implements [runtime.ObjectTyper].
func (o only) ObjectKinds(runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{o.kind}, false, nil
}

// Recognizes implements [runtime.ObjectTyper].
func (o only) Recognizes(kind schema.GroupVersionKind) bool { return kind == o.kind }

func (o only) unknown(kind schema.GroupVersionKind) error {
	return runtime.NewNotRegisteredErrForKind("replica", kind)
}

// decoder returns the decoder of a media type, nil if there is none.
func (o only) decoder(media string, strict bool) runtime.Decoder {
	switch media {
	case encode.JSON.MediaType():
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, o, o, json.SerializerOptions{Strict: strict})
	case encode.YAML.MediaType():
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, o, o,
			json.SerializerOptions{Strict: strict, Yaml: true})
	case encode.Protobuf.MediaType():
		return protobuf.NewSerializer(o, o)
	}
	return nil
}

// ReadObject reads the object that a request creates into one of that kind, as kube-apiserver
// does: in the encoding of its Content-Type, with warnings about fields that the kind does not
// have.
func ReadObject(
	w http.ResponseWriter, r *http.Request, kind schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, error) {
	opts := metav1.CreateOptions{}
	var media string
	if header := r.Header.Get("Content-Type"); header == "" {
		media = encode.JSON.MediaType()
	} else if media, _, _ = mime.ParseMediaType(header); (only{}).decoder(media, false) == nil {
		return nil, status.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body of the request was in an unknown format - accepted media types include: "+
				strings.Join(ObjectTypes, ", "))
	}
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	if err := scheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateCreateOptions(&opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	checks := cmp.Or(opts.FieldValidation, metav1.FieldValidationWarn)
	object, actual, err := only{kind, into}.decoder(media, checks != metav1.FieldValidationIgnore).Decode(body, &kind,
		into)
	switch unknown, isStrict := runtime.AsStrictDecodingError(err); {
	case isStrict && object != nil && checks == metav1.FieldValidationWarn:
		for _, err := range unknown.Errors()[:min(len(unknown.Errors()), warning.Limit)] {
			warning.Add(w.Header(), err.Error())
		}
	case err != nil && actual != nil && actual.Kind != "":
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", actual.Kind, actual.Version, kind.Kind, err),
		)
	case err != nil:
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", kind.Kind, err,
				summary(body)),
		)
	}
	return object, nil
}

// summary returns the beginning of a body that cannot be decoded, as kube-apiserver shows it.
func summary(body []byte) string {
	const most = 30
	dots := ""
	switch {
	case len(body) == 0:
		return "<empty>"
	case len(body) > most:
		body, dots = body[:most], " ..."
	}
	if body[0] == '{' {
		return string(body) + dots
	}
	return hex.EncodeToString(body) + dots
}

// readBody reads the body of a request that creates an object.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxObject))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxObject))
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return body, nil
}

// WriteObject writes an object, which must have its kind. If it returns an error, nothing has
// been written.
func WriteObject(w http.ResponseWriter, code int, object runtime.Object, m Media) error {
	var encoder runtime.Encoder
	switch m.Encoding {
	case encode.Protobuf:
		encoder = protobuf.NewSerializer(nil, nil)
	default:
		encoder = json.NewSerializerWithOptions(nil, nil, nil,
			json.SerializerOptions{Yaml: m.Encoding == encode.YAML, Pretty: m.Pretty})
	}
	body, err := runtime.Encode(encoder, object)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", m.Encoding.MediaType())
	w.WriteHeader(code)
	_, _ = w.Write(body)
	return nil
}

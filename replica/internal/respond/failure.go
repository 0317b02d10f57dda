// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Text writes a response in plain text.
func Text(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// Error writes the status of an error, in the encoding that the client accepts.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, status.ErrNoPage) {
		Text(w, http.StatusNotFound, err.Error()+"\n")
		return
	}
	m, negotiated := Negotiate(r, Ability{Protobuf: true})
	if negotiated != nil {
		m = Media{Pretty: IsPretty(r)}
	}
	writeStatus(w, status.Of(err), m)
}

// DocumentError writes the status of an error of a discovery document, in indented JSON
// whatever the client accepts, as kube-apiserver does.
func DocumentError(w http.ResponseWriter, err error) {
	writeStatus(w, status.Of(err), Media{Pretty: true})
}

func writeStatus(w http.ResponseWriter, s *metav1.Status, m Media) {
	header := w.Header()
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	body, contentType := EncodeStatus(s, m)
	header.Del("Content-Encoding")
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache, private")
	if response, ok := w.(*Response); ok {
		response.reason = s.Reason
	}
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body)
}

// ErrorWithWarning is [Error] with the message as a warning too. client-go drops the
// message of a failed discovery request, and shows warnings.
func ErrorWithWarning(w http.ResponseWriter, r *http.Request, err error) {
	warning.Add(w.Header(), status.Of(err).Message)
	Error(w, r, err)
}

// EncodeStatus returns the bytes of a status, and their media type.
func EncodeStatus(s *metav1.Status, m Media) (body []byte, contentType string) {
	if m.Encoding == encode.Protobuf {
		if raw, err := s.Marshal(); err == nil {
			return encode.Envelope(nil, "v1", "Status", raw), encode.Protobuf.MediaType()
		}
	}
	body, err := json.Marshal(s)
	if err != nil {
		return []byte(err.Error()), "text/plain"
	}
	if m.Encoding == encode.YAML {
		if text, err := yaml.JSONToYAML(body); err == nil {
			return text, encode.YAML.MediaType()
		}
	}
	return append(Indent(body, m.Pretty), '\n'), encode.JSON.MediaType()
}

// Indent returns JSON with line breaks and indentation, if pretty is set.
func Indent(body []byte, pretty bool) []byte {
	if !pretty {
		return body
	}
	var out bytes.Buffer
	if json.Indent(&out, body, "", "  ") != nil {
		return body
	}
	return out.Bytes()
}

// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package etcd calls the few methods of etcd that the tests need. They are gRPC, which is a
// protobuf message in an HTTP/2 request and another one in its response; net/http does
// that without the standard client, which would bring gRPC and zap into the go.mod of
// every user of the library. etcd's JSON gateway would need a third more CPU time for
// loading pods and reading them back, because its values are base64.
//
// The numbers of fields are those in etcd's rpc.proto and kv.proto.
package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Client calls one etcd server without TLS.
type Client struct {
	url       string
	transport *http.Transport
}

// New returns a client of the server at url. Its connection opens with the first call.
func New(url string) *Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &Client{url: url, transport: transport}
}

// Close closes the connection.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// message is a protobuf message that is being written.
type message []byte

// bytes appends a field that is bytes or a message, unless it is empty: for etcd, an
// empty end of a range is not the same as none.
func (m message) bytes(field int, value []byte) message {
	if len(value) == 0 {
		return m
	}
	m = binary.AppendUvarint(m, uint64(field)<<3|protobuf.TypeBytes)
	m = binary.AppendUvarint(m, uint64(len(value)))
	return append(m, value...)
}

// number appends a field that is a number.
func (m message) number(field int, value int64) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|protobuf.TypeVarint)
	return binary.AppendUvarint(m, uint64(value))
}

// KeyValue is a key and its value.
type KeyValue struct {
	Key      string
	Value    []byte
	Revision int64 // of the last change; only when read
}

// put returns a PutRequest.
func (kv KeyValue) put() message {
	return make(message, 0, len(kv.Key)+len(kv.Value)+16).bytes(1, []byte(kv.Key)).bytes(2, kv.Value)
}

// Range is the keys from First up to End. Without End it is only First.
type Range struct {
	First, End string
	Limit      int64 // how many keys a response has at most; 0 for all
	Revision   int64 // 0 for the current one
}

// Page is the response to a read.
type Page struct {
	Values   []KeyValue
	Revision int64
	More     bool // the range has more values than the limit
}

// Read returns the values of a range at one revision. They refer to the bytes of the
// response.
func (c *Client) Read(ctx context.Context, r Range) (*Page, error) {
	request := message{}.bytes(1, []byte(r.First)).bytes(2, []byte(r.End)).number(3, r.Limit).number(4, r.Revision)
	response, err := c.call(ctx, "Range", request)
	if err != nil {
		return nil, err
	}
	p := &Page{Revision: revisionOf(response)}
	s := protobuf.Scanner{Data: response}
	for s.Next() {
		switch s.Field {
		case 2:
			p.Values = append(p.Values, parseKeyValue(s.Bytes()))
		case 3:
			p.More = s.Varint() != 0
		}
	}
	if s.Bad {
		return nil, errors.New("etcd: Range: the response is malformed")
	}
	return p, nil
}

func parseKeyValue(m []byte) KeyValue {
	var kv KeyValue
	s := protobuf.Scanner{Data: m}
	for s.Next() {
		switch s.Field {
		case 1:
			kv.Key = string(s.Bytes())
		case 3:
			kv.Revision = int64(s.Varint())
		case 5:
			kv.Value = s.Bytes()
		}
	}
	return kv
}

// revisionOf returns the revision of etcd that is in the header of every response.
func revisionOf(response []byte) int64 {
	s := protobuf.Scanner{Data: response}
	for s.Next() {
		if s.Field != 1 {
			continue
		}
		header := protobuf.Scanner{Data: s.Bytes()}
		for header.Next() {
			if header.Field == 3 {
				return int64(header.Varint())
			}
		}
	}
	return 0
}

// Put writes one value and returns the revision of the write.
func (c *Client) Put(ctx context.Context, kv KeyValue) (revision int64, err error) {
	response, err := c.call(ctx, "Put", kv.put())
	return revisionOf(response), err
}

// PutAll writes values in one transaction. etcd allows 128.
func (c *Client) PutAll(ctx context.Context, values []KeyValue) error {
	var transaction message
	for _, kv := range values {
		transaction = transaction.bytes(2, message{}.bytes(2, kv.put()))
	}
	_, err := c.call(ctx, "Txn", transaction)
	return err
}

// PutNew writes one value unless its key exists.
func (c *Client) PutNew(ctx context.Context, kv KeyValue) error {
	const equal, createRevision = 0, 1
	isNew := message{}.number(1, equal).number(2, createRevision).bytes(3, []byte(kv.Key)).number(5, 0)
	_, err := c.call(ctx, "Txn", message{}.bytes(1, isNew).bytes(2, message{}.bytes(2, kv.put())))
	return err
}

// Delete removes the keys from first up to end, or only first without an end.
func (c *Client) Delete(ctx context.Context, first, end string) error {
	_, err := c.call(ctx, "DeleteRange", message{}.bytes(1, []byte(first)).bytes(2, []byte(end)))
	return err
}

// Compact removes the history before a revision, and returns when it is gone from the
// file.
func (c *Client) Compact(ctx context.Context, revision int64) error {
	_, err := c.call(ctx, "Compact", message{}.number(1, revision).number(2, 1))
	return err
}

// PrefixEnd returns the first key after all keys that begin with prefix. The prefix must
// end in a byte below 255, as paths do.
func PrefixEnd(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string(prefix[last]+1)
}

// call sends a request to a method of etcd's service KV and returns the response.
func (c *Client) call(ctx context.Context, method string, request message) (response []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("etcd: %s: %w", method, err)
		}
	}()
	// A frame has a byte for compression, the length of its message in four bytes, and
	// the message.
	frame := binary.BigEndian.AppendUint32(make([]byte, 1, 5), uint32(len(request)))
	body := io.MultiReader(bytes.NewReader(frame), bytes.NewReader(request))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/etcdserverpb.KV/"+method, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	// The result is in the trailer, or in the header of a response without a message.
	for _, end := range []http.Header{resp.Header, resp.Trailer} {
		if code := end.Get("Grpc-Status"); code != "" && code != "0" {
			return nil, fmt.Errorf("%s (gRPC status %s)", end.Get("Grpc-Message"), code)
		}
	}
	if len(content) < len(frame) || uint64(binary.BigEndian.Uint32(content[1:])) != uint64(len(content)-len(frame)) {
		return nil, errors.New("the response is incomplete")
	}
	return content[len(frame):], nil
}

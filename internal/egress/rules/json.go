package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxJSON bounds the JSON form, in bytes: it is handed to the gateway in one message.
const MaxJSON = 3 << 20

// JSON returns the canonical form: equal policies have equal bytes, and [Parse]
// reads them.
func (p *Policy) JSON() []byte {
	out, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("cannot write a policy: %v", err)) // plain values only
	}
	return out
}

// Parse reads the canonical form and checks it like a file. Unknown fields are
// errors.
func Parse(text []byte) (*Policy, error) {
	if len(text) > MaxJSON {
		return nil, fmt.Errorf("cannot read policy: it is longer than %d bytes", MaxJSON)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	p := new(Policy)
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("cannot read policy: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("cannot read policy: something follows it")
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if again := p.JSON(); !bytes.Equal(again, text) {
		return nil, errors.New("cannot read policy: it is not in its canonical form")
	}
	return p, nil
}

// Digest names the content: the SHA-256 of the canonical form, in hexadecimal.
func (p *Policy) Digest() string {
	sum := sha256.Sum256(p.JSON())
	return hex.EncodeToString(sum[:])
}

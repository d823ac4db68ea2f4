package guest

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// maxFields bounds the fields of one message, elements of lists among them. An
// element takes two bytes on the wire and a hundred in memory, so a bound in
// bytes alone is none.
const maxFields = 20_000

// codec is Protobuf's binary form, read with care.
type codec struct{}

// Name is that of the form, in content types.
func (codec) Name() string { return "proto" }

// Marshal encodes what we send.
func (codec) Marshal(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a message", m)
	}
	return proto.Marshal(p)
}

// Unmarshal decodes what we hear. Fields that are unknown here are dropped.
func (codec) Unmarshal(b []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("decode %T: not a message", m)
	}
	if err := countFields(b); err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 10}.Unmarshal(b, p)
}

func countFields(b []byte) error {
	for n := 0; len(b) > 0; n++ {
		if n == maxFields {
			return fmt.Errorf("decode message: more than %d fields", maxFields)
		}
		_, _, size := protowire.ConsumeField(b)
		if size < 0 {
			return errors.New("decode message: not the wire format")
		}
		b = b[size:]
	}
	return nil
}

package mcp

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/sunaba-dev/sunaba/box"
)

// schemaNode is what a test wants to know of a schema.
type schemaNode struct {
	Order      []string
	Properties map[string]*schemaNode `json:"properties"`
}

func nodeOf(s *jsonschema.Schema) *schemaNode {
	n := &schemaNode{Order: s.PropertyOrder, Properties: map[string]*schemaNode{}}
	for name, p := range s.Properties {
		n.Properties[name] = nodeOf(p)
	}
	return n
}

func TestOutputsAreBoundedInBytesAndTime(t *testing.T) {
	now := time.Unix(0, 0)
	o := NewOutputs(100, time.Hour, func() time.Time { return now })
	a := o.Put("t", "", strings.Repeat("a", 60))
	b := o.Put("t", "", strings.Repeat("b", 40))
	if _, ok := o.Get("t", a); !ok {
		t.Error("what fits is not kept")
	}
	c := o.Put("t", "", "c")
	if _, ok := o.Get("t", a); ok {
		t.Error("the oldest is kept over the bound")
	}
	for _, name := range []string{b, c} {
		if _, ok := o.Get("t", name); !ok {
			t.Error("more was dropped than had to be")
		}
	}
	if _, ok := o.Get("other", b); ok {
		t.Error("another tenant reads an output")
	}
	if o.Put("t", "", strings.Repeat("x", 101)) != "" {
		t.Error("what is larger than all was kept")
	}
	id := box.NewID()
	d := o.Put("t", id, "d")
	o.Forget("t", id)
	if _, ok := o.Get("t", d); ok {
		t.Error("an output outlives its box")
	}
	now = now.Add(time.Hour)
	if _, ok := o.Get("t", c); ok {
		t.Error("an output is kept for ever")
	}
	if got := o.(*outputs); got.bytes != 0 || len(got.kept) != 0 || len(got.order) != 0 {
		b, _ := json.Marshal(got.order)
		t.Errorf("an empty store holds %d bytes, %d outputs, order %s", got.bytes, len(got.kept), b)
	}
}

package rest_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are those of the document's answers.
type schemas struct {
	mu sync.Mutex
	c  *jsonschema.Compiler
}

func newSchemas(t *testing.T, doc []byte) *schemas {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("https://sunaba.invalid/openapi.json", v); err != nil {
		t.Fatal(err)
	}
	return &schemas{c: c}
}

func (s *schemas) check(t *testing.T, path, method string, status int, body []byte) {
	t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	ref := fmt.Sprintf("https://sunaba.invalid/openapi.json#/paths/%s/%s/responses/%d/content/application~1json/schema", escape.Replace(path), method, status)
	s.mu.Lock()
	schema, err := s.c.Compile(ref)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("the answer is not what the document says: %v\n%s", err, body)
	}
}

package rest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server/rest"
	"github.com/sunaba-dev/sunaba/internal/server/servertest"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const published = "../../../docs/openapi.json"

func TestPublishedDocumentIsTheServedOne(t *testing.T) {
	doc := rest.New(rest.Config{Version: "dev"}).Document()
	if *update {
		if err := os.WriteFile(published, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(published)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, doc) {
		t.Error("docs/openapi.json is not what is served: go test ./internal/server/rest -run Document -update")
	}
}

// The document is valid by the schema that the OpenAPI Initiative publishes for
// 3.1 (https://spec.openapis.org/oas/3.1/schema/2026-08-03), and each schema in
// it by that of JSON Schema 2020-12.
func TestDocumentIsValidOpenAPI(t *testing.T) {
	oas, err := os.Open("testdata/oas-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer oas.Close()
	schema, err := jsonschema.UnmarshalJSON(oas)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("oas.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("oas.json")
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.api.Document()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Errorf("%#v", err)
	}
	schemas := newSchemas(t, d.api.Document())
	for name := range doc.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := schemas.c.Compile("https://sunaba.invalid/openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	broken := bytes.Replace(d.api.Document(), []byte(`"in": "path"`), []byte(`"in": "nowhere"`), 1)
	if doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(broken)); err != nil || s.Validate(doc) == nil {
		t.Errorf("a broken document is valid, too: this test judges nothing (%v)", err)
	}
}

func TestDocumentIsServedWithoutKey(t *testing.T) {
	d := serve(t)
	asJSON := d.do(ask{method: "GET", path: "/openapi.json"})
	if asJSON.status != 200 || !bytes.Equal(asJSON.body, d.api.Document()) {
		t.Errorf("status %d, %d bytes", asJSON.status, len(asJSON.body))
	}
	asYAML := d.do(ask{method: "GET", path: "/openapi.yaml"})
	if asYAML.status != 200 || !bytes.Contains(asYAML.body, []byte("openapi: 3.1.0\n")) {
		t.Errorf("status %d: %.100s", asYAML.status, asYAML.body)
	}
}

// Every operation says what it is, which right it takes, and how it fails.
func TestEveryRouteNamesItsRight(t *testing.T) {
	scopes := []string{}
	for _, s := range box.Scopes() {
		scopes = append(scopes, string(s))
	}
	ids := map[string]bool{}
	for path, item := range documentOf(t, serve(t)).Paths {
		for method, op := range item {
			name := method + " " + path
			public, keyed := strings.HasPrefix(path, "/v1/signed"), path == "/v1/me"
			if slices.Contains(scopes, op.Scope) == (public || keyed) {
				t.Errorf("%s takes the right %q", name, op.Scope)
			}
			if op.ID == "" || ids[op.ID] || op.Summary == "" {
				t.Errorf("%s: id %q, summary %q", name, op.ID, op.Summary)
			}
			ids[op.ID] = true
			for _, status := range []string{"422", "429", "500", "501", "503"} {
				if op.Responses[status].Content["application/json"] == nil {
					t.Errorf("%s does not declare %s", name, status)
				}
			}
			for _, field := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.In == "path" && p.Name == field[1] }) {
					t.Errorf("%s does not tell of {%s}", name, field[1])
				}
			}
		}
	}
}

// The keys of `sandbox` in the document are those of docs/configuration.md.
func TestSandboxHasTheKeysOfConfiguration(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [^|]+ \\| [^|]* \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		want[m[1]] = strings.TrimSpace(m[2])
	}
	if len(want) < 20 {
		t.Fatalf("%d keys found in the page", len(want))
	}
	type object struct {
		Properties map[string]json.RawMessage
		Enum       []string
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]object }
		}
	}
	if err := json.Unmarshal(rest.New(rest.Config{}).Document(), &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	var walk func(prefix string, o object)
	walk = func(prefix string, o object) {
		for name, raw := range o.Properties {
			var below object
			json.Unmarshal(raw, &below)
			if below.Properties != nil {
				walk(prefix+name+".", below)
				continue
			}
			got[prefix+name] = true
			if below.Enum != nil && strings.Join(below.Enum, ", ") != want[prefix+name] {
				t.Errorf("%s may be %v, and in docs/configuration.md: %s", prefix+name, below.Enum, want[prefix+name])
			}
		}
	}
	walk("", doc.Components.Schemas["CreateRequestBody"].Properties["sandbox"])
	for name := range want {
		if !got[name] {
			t.Errorf("%s is in docs/configuration.md only", name)
		}
	}
	for name := range got {
		if want[name] == "" {
			t.Errorf("%s is not in docs/configuration.md", name)
		}
	}
}

// The answer of a run is what docs/result.schema.json says, as for `sunaba run`.
func TestExecuteAnswersWithTheReportOfRun(t *testing.T) {
	d := serve(t)
	s, err := jsonschema.NewCompiler().Compile("../../../docs/result.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []map[string]any{
		{"command": words("exit 3")},
		{"language": "bash", "code": "cat", "stdin": "hello", "files": []any{map[string]any{"path": "a", "content": "b"}}, "sandbox": map[string]any{"resource_limits": map[string]any{"memory": "64m"}}},
	} {
		got := d.want(200, ask{method: "POST", path: "/v1/execute", body: body}, nil)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.body))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%v\n%s", err, got.body)
		}
	}
	d.want(422, ask{method: "POST", path: "/v1/execute", body: map[string]any{"command": words("exit 3"), "code": "x"}, key: servertest.Key}, nil)
	d.want(422, ask{method: "POST", path: "/v1/execute", body: map[string]any{}, key: servertest.Key}, nil)
}

package config

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
)

const schemaFile = "../../docs/result.schema.json"

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertContent()
	s, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// full is a report with every field set that may be set together.
func full() box.Report {
	code := 3
	out := "héllo\x1b[0m\n"
	errBase64 := "/w=="
	c := Default()
	spec := c.Request().Spec
	spec.Mounts = []box.Mount{{Source: "/data/input", Target: "/input", ReadOnly: true}}
	spec.Volumes = []box.Volume{{Name: "data", Target: "/data", ReadOnly: true}}
	return box.Report{
		ID: box.NewID(), Cause: box.Exited, ExitCode: &code,
		LimitsHit: []box.LimitHit{{Limit: "memory", Source: "guest kernel"}, {Limit: "timeout_sec", Source: "clock", Ended: true}},
		Stdout:    &out, StdoutClean: "héllo", StdoutBytes: 7, StdoutTruncated: true,
		StderrBase64: &errBase64, StderrClean: "<ff>", StderrBytes: 1, StderrTruncated: true, Truncated: true,
		Output: json.RawMessage(`{"a": [1, null]}`), OutputError: "cannot read output.json: too large",
		Artifacts:      []box.Artifact{{Path: "chart.svg", Size: 12, SHA256: strings.Repeat("ab", 32), Saved: "out/chart.svg"}, {Path: "n\ufffd", PathBase64: "bv8=", Error: "it is a link"}},
		ArtifactsError: "cannot collect files: not done after 3m0s",
		Usage:          box.UsageJSON{CPUSeconds: 0.5, WallSeconds: 1, MemoryPeakBytes: 1 << 20, BytesWritten: 12},
		Tier:           box.TierGvisor, TierReason: "trust untrusted needs at least gvisor",
		Image: "base@sha256:" + strings.Repeat("0", 64), Start: box.StartCold,
		Policy: policy.InForce(spec, c.Trust, c.User),
		Network: box.Traffic{Generation: 2, Open: 1, Connections: 7, Sent: 1000, Received: 2000, Denied: []box.Denial{{Kind: "http", Name: "a.test", Addr: "198.18.0.9", Port: 80,
			Method: "POST", Path: "/x", Code: "method_not_allowed", Rule: "api", Reason: "no rule allows POST", Fix: "- { methods: [POST], paths: [\"/x\"] }", Count: 3}}},
		Weak:  []string{"the cpu limit is not enforced"},
		Error: &box.ErrorJSON{Kind: box.Fault, Message: "cannot destroy box: busy", Hint: "run sunaba doctor"},
	}
}

// early is what a run that never started answers with.
func early() box.Report {
	return box.Report{
		LimitsHit: []box.LimitHit{}, Artifacts: []box.Artifact{}, Weak: []string{}, Network: box.Traffic{Denied: []box.Denial{}},
		Policy: policy.InForce(box.Spec{}, "", ""),
		Error:  &box.ErrorJSON{Kind: box.Unusable, Message: "cannot use tier gvisor on this host"},
	}
}

func tree(t *testing.T, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReportsMeetTheSchema(t *testing.T) {
	s := schema(t)
	signaled := full()
	signal := 9
	signaled.Cause, signaled.ExitCode, signaled.Signal, signaled.Error = box.Signaled, nil, &signal, nil
	quiet := full()
	empty := ""
	quiet.Stderr, quiet.StderrBase64, quiet.Output, quiet.OutputError, quiet.Error = &empty, nil, nil, "", nil
	reports := map[string]box.Report{"full": full(), "early error": early(), "signaled": signaled, "quiet": quiet}
	for _, cause := range box.Causes() {
		if cause != box.Exited && cause != box.Signaled {
			r := full()
			r.Cause, r.ExitCode = cause, nil
			reports[string(cause)] = r
		}
	}
	for name, r := range reports {
		if err := s.Validate(tree(t, r)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFullReportSetsEveryField(t *testing.T) {
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; {
		case name == "Signal" || name == "StdoutBase64" || name == "Stderr": // shut out by other fields
		case v.Field(i).IsZero():
			t.Errorf("%s is not set", name)
		}
	}
}

func TestSchemaRefusesEachMissingField(t *testing.T) {
	s := schema(t)
	optional := []string{"error", "output_error", "artifacts_error", "stdout_base64"}
	for name := range tree(t, full()) {
		doc := tree(t, full())
		delete(doc, name)
		if name == "cause" {
			delete(doc, "error") // without a cause there must be an error
		}
		if err := s.Validate(doc); (err == nil) != slices.Contains(optional, name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestSchemaRefusesWrongReports(t *testing.T) {
	s := schema(t)
	for name, change := range map[string]func(m map[string]any){
		"unknown cause":             func(m map[string]any) { m["cause"] = "exploded" },
		"unknown field":             func(m map[string]any) { m["extra"] = 1 },
		"unknown field in policy":   func(m map[string]any) { m["policy"].(map[string]any)["extra"] = 1 },
		"no exit code":              func(m map[string]any) { m["exit_code"] = nil },
		"exit code of a deadline":   func(m map[string]any) { m["cause"] = "deadline" },
		"exit code as text":         func(m map[string]any) { m["exit_code"] = "3" },
		"exit code out of range":    func(m map[string]any) { m["exit_code"] = 256 },
		"signal of an exit":         func(m map[string]any) { m["signal"] = 9 },
		"tier auto":                 func(m map[string]any) { m["tier"] = "auto" },
		"no tier":                   func(m map[string]any) { m["tier"] = "" },
		"null list":                 func(m map[string]any) { m["weak"] = nil },
		"negative bytes":            func(m map[string]any) { m["stdout_bytes"] = -1 },
		"bad id":                    func(m map[string]any) { m["id"] = "bx../../etc" },
		"stdout twice":              func(m map[string]any) { m["stdout_base64"] = "/w==" },
		"stderr nowhere":            func(m map[string]any) { delete(m, "stderr_base64") },
		"not base64":                func(m map[string]any) { m["stderr_base64"] = "ÿ===" },
		"unknown limit":             func(m map[string]any) { m["limits_hit"].([]any)[0].(map[string]any)["limit"] = "ram" },
		"unknown kind of error":     func(m map[string]any) { m["error"].(map[string]any)["kind"] = "oops" },
		"artifact outside":          func(m map[string]any) { m["artifacts"].([]any)[0].(map[string]any)["path"] = "/etc/x" },
		"artifact without a digest": func(m map[string]any) { m["artifacts"].([]any)[0].(map[string]any)["sha256"] = "" },
	} {
		doc := tree(t, full())
		change(doc)
		if s.Validate(doc) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The schema and box.Report are walked side by side.
func TestSchemaAndReportHaveTheSameFields(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	compare(t, "report", root, root, reflect.TypeFor[box.Report]())
}

func compare(t *testing.T, at string, root, node map[string]any, typ reflect.Type) {
	if ref, ok := node["$ref"].(string); ok {
		node = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[json.RawMessage]():
		return
	case typ.Kind() == reflect.Slice:
		compare(t, at+"[]", root, node["items"].(map[string]any), typ.Elem())
		return
	case typ.Kind() != reflect.Struct:
		return
	}
	if node["additionalProperties"] != false {
		t.Errorf("%s allows additional properties", at)
	}
	properties := node["properties"].(map[string]any)
	var required []string
	for _, r := range node["required"].([]any) {
		required = append(required, r.(string))
	}
	seen := 0
	for i := range typ.NumField() {
		name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "-" { // no part of a document
			continue
		}
		p, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s.%s is not in the schema", at, name)
			continue
		}
		seen++
		if optional := options == "omitempty"; optional == slices.Contains(required, name) {
			t.Errorf("%s.%s: omitempty is %v, but so is required", at, name, optional)
		}
		compare(t, at+"."+name, root, p, typ.Field(i).Type)
	}
	if seen != len(properties) {
		t.Errorf("%s: the schema has %d properties, the type has %d fields", at, len(properties), seen)
	}
	if len(required) > len(properties) {
		t.Errorf("%s requires what is no property", at)
	}
}

func TestSchemaKnowsTheWordsOfTheVocabulary(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Properties struct {
			Tier, Start struct{ Enum []string }
		}
		Defs struct {
			Cause    struct{ Enum []string }
			LimitHit struct {
				Properties struct{ Limit struct{ Enum []string } }
			} `json:"limit_hit"`
			Policy struct {
				Properties struct {
					Trust struct{ Enum []string }
					User  struct{ Enum []string }
				}
			}
			Error struct {
				Properties struct{ Kind struct{ Enum []string } }
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	limitNames := []string{"volume"} // which is full; its size is the volume's own
	for _, r := range policy.Ranges() {
		if r.Name != "grace_sec" { // not a limit that a program can touch
			limitNames = append(limitNames, r.Name)
		}
	}
	tiers := slices.DeleteFunc(box.TierNames(), func(n box.TierName) bool { return n == box.TierAuto })
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"cause", doc.Defs.Cause.Enum, words(box.Causes()...)},
		{"tier", doc.Properties.Tier.Enum, append(words(tiers...), "")},
		{"start", doc.Properties.Start.Enum, append(words(box.StartCold, box.StartWarm, box.StartRestored), "")},
		{"trust", doc.Defs.Policy.Properties.Trust.Enum, append(words(box.Trusts()...), "")},
		{"user", doc.Defs.Policy.Properties.User.Enum, append(words(box.UserOrdinary, box.UserRoot), "")},
		{"limit", doc.Defs.LimitHit.Properties.Limit.Enum, limitNames},
		{"kind", doc.Defs.Error.Properties.Kind.Enum, words(box.Invalid, box.Denied, box.Unsupported, box.Unusable, box.NotFound, box.Conflict, box.Unavailable, box.Exhausted, box.Fault)},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: schema has %q, the vocabulary %q", c.what, c.got, c.want)
		}
	}
}

func words[T ~string](in ...T) []string {
	var out []string
	for _, w := range in {
		out = append(out, string(w))
	}
	return out
}

package rest

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
)

// Sandbox is what a box shall be like, in the words of a configuration file. It
// is passed on as it is: it is understood, and refused by name where it is not,
// where configuration is.
type Sandbox struct{ json.RawMessage }

// key is one that a configuration file may have below `sandbox`.
type key struct {
	name  string
	about string
	forms []string // JSON types; an object's keys are below it
	enum  []any
	keys  []key
}

// Schema implements huma.SchemaProvider.
func (Sandbox) Schema(huma.Registry) *huma.Schema {
	s := object(sandboxKeys())
	s.Description = "What the box shall be like: the keys below `sandbox` of docs/configuration.md, all optional, with their units. An unknown key, value or unit is an error that names it."
	return s
}

func object(keys []key) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: true}
	for _, k := range keys {
		s.Properties[k.name] = k.schema()
	}
	return s
}

func (k key) schema() *huma.Schema {
	if k.keys != nil {
		s := object(k.keys)
		s.Description = k.about
		return s
	}
	s := &huma.Schema{Description: k.about, Enum: k.enum}
	if len(k.forms) == 1 {
		s.Type = k.forms[0]
		switch s.Type {
		case huma.TypeArray:
			s.Items = &huma.Schema{}
		case huma.TypeObject:
			s.AdditionalProperties = true
		}
		return s
	}
	for _, f := range k.forms {
		s.AnyOf = append(s.AnyOf, &huma.Schema{Type: f})
	}
	return s
}

// sandboxKeys is the shape of docs/configuration.md; a test compares them.
func sandboxKeys() []key {
	text, flag := []string{huma.TypeString}, []string{huma.TypeBoolean}
	number, some := []string{huma.TypeNumber, huma.TypeString}, []string{huma.TypeArray}
	return []key{
		{name: "runtime", forms: text, about: "How the walls are built; auto decides by trust.", enum: []any{"auto", "process", "gvisor", "container", "docker", "firecracker", "microvm", "wasm"}},
		{name: "trust", forms: text, about: "How much you trust the code.", enum: []any{"hostile", "untrusted", "internal", "trusted"}},
		{name: "image", forms: text, about: "Root file system.", enum: []any{"host", "base"}},
		{name: "user", forms: text, about: "Who a program is in the box; neither has power outside.", enum: []any{"user", "root"}},
		{name: "env", forms: []string{huma.TypeObject}, about: "Environment of programs; nothing is inherited."},
		{name: "resource_limits", about: "Bounds.", keys: []key{
			{name: "cpu", forms: number, about: "Processor time a second, in cores."},
			{name: "memory", forms: number, about: "Memory of the box: bytes, or a size as 512m."},
			{name: "timeout_sec", forms: number, about: "Wall clock of a run."},
			{name: "idle_sec", forms: number, about: "Time without a byte in or out."},
			{name: "grace_sec", forms: number, about: "Time between SIGTERM and SIGKILL at a deadline."},
			{name: "max_processes", forms: number, about: "Processes and threads of the program's user."},
			{name: "max_open_files", forms: number, about: "Open files of one process."},
			{name: "disk", forms: number, about: "All writable places together."},
			{name: "max_files", forms: number, about: "Files and folders in all writable places together."},
			{name: "max_output", forms: number, about: "Output of a run, in bytes."},
			{name: "on_limit", forms: text, about: "What happens at max_processes, max_open_files, disk and max_files.", enum: []any{"record", "kill"}},
		}},
		{name: "network", about: "What the box can reach.", keys: []key{
			{name: "mode", forms: text, about: "none: a loopback interface and nothing else. allowlist: what allowlist says."},
			{name: "allowlist", forms: some, about: "What mode allowlist allows, as HOST:PORT; *.HOST stands for all names below. Empty allows nothing."},
			{name: "policy", forms: text, about: "A policy file of this host; refused in a request."},
			{name: "rules", forms: []string{huma.TypeObject}, about: "A policy in its long form, instead of allowlist: what a policy file has, see docs/egress-policy.md."},
		}},
		{name: "filesystem", about: "What the box can see.", keys: []key{
			{name: "read_only_mounts", forms: some, about: "Host folders or files shown read-only, as {host, container}."},
			{name: "read_write_mounts", forms: some, about: "Host folders or files that programs may change."},
			{name: "writable_dir", forms: text, about: "Where programs start and may write."},
			{name: "no_mount", forms: some, about: "Host paths never shown."},
			{name: "host_prefixes", forms: some, about: "Further host folders that image host shows read-only."},
		}},
		{name: "volumes", forms: some, about: "File systems that outlive boxes, as {name, container, read_only}: see /v1/volumes."},
		{name: "lifecycle", about: "The warm pool.", keys: []key{
			{name: "reuse", forms: flag, about: "Use the warm pool."},
			{name: "pool_size", forms: number, about: "Boxes kept warm."},
		}},
	}
}

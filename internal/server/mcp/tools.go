package mcp

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

// addTools adds every tool. A client gets them sorted by name.
//
// Hints are what an approval dialogue shows. What runs a program of the model's
// choice is destructive and open: the program can remove whatever is in the
// box, and its output is as little to be trusted as a page of the web.
func (s *Server) addTools() {
	add(s, tool("create_box", "Create a sandbox", createText, changes), call.createBox)
	add(s, tool("destroy_box", "Destroy a sandbox", destroyText, destroys), call.destroyBox)
	add(s, tool("execute", "Execute anything", executeText, runs), call.execute)
	add(s, tool("list_files", "List files", listText, reads), call.listFiles)
	add(s, tool("read_file", "Read a file", readText, reads), call.readFile)
	add(s, tool("run_code", "Run code", codeText+" "+s.cfg.reaches(), runs), call.runCode)
	add(s, tool("run_command", "Run a command", commandText+" "+s.cfg.reaches(), runs), call.runCommand)
	add(s, tool("write_file", "Write a file", writeText, destroys), call.writeFile)
}

// effect is what a tool does to the world.
type effect int

const (
	reads    effect = iota // nothing
	changes                // adds to it
	destroys               // may undo what was there; twice is as once
	runs                   // whatever a program does
)

func tool(name, title, description string, e effect) sdk.Tool {
	destructive, open := e == destroys || e == runs, e == runs
	return sdk.Tool{Name: name, Title: title, Description: description, Annotations: &sdk.ToolAnnotations{
		Title:           title,
		ReadOnlyHint:    e == reads,
		DestructiveHint: &destructive,
		IdempotentHint:  e == reads || e == destroys,
		OpenWorldHint:   &open,
	}}
}

const (
	codeText = `Run code in python, javascript or bash. Without sandbox_id it runs as a program in a new box that is gone afterwards. ` +
		`With sandbox_id it runs in a code context of that box, where variables survive from call to call: the box's context of that language, ` +
		`or the one that context_id names; context_id "new" opens another. Values, tables and figures come back as results.`
	commandText = `Run a command: a string for bash -c, or an array of a program and its arguments. Without sandbox_id it runs in a new box that is gone afterwards. ` +
		`With background (needs sandbox_id) the call returns at once with the process's pid; send its output to a file to read it with read_file.`
	readText    = `Read a file of a box, or a part of it: limit bytes from offset on. Text comes as it is; what is not text comes as base64 in content_base64.`
	writeText   = `Write a file of a box. What was there is replaced; missing folders are made. Give the content as text, or as base64 in content_base64.`
	listText    = `List a folder of a box, depth levels deep.`
	createText  = `Create a box that lasts: files, processes and variables stay until destroy_box, or until ttl_sec is over. Returns its sandbox_id. Every argument may be left out.`
	destroyText = `Destroy a box and all that is in it. Destroying it again is no error.`
	executeText = `Do anything by name: name is a language (python, javascript, bash) and input is code, or name is another tool and input its arguments as a JSON text. The answer is one text.`
)

// command is what to run: a line for bash, or a program and its arguments.
type command struct {
	line string
	argv []string
}

func commandSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Description: "a line for bash -c, or a program and its arguments",
		AnyOf: []*jsonschema.Schema{
			{Type: "string", MinLength: jsonschema.Ptr(1)},
			{Type: "array", Items: &jsonschema.Schema{Type: "string"}, MinItems: jsonschema.Ptr(1)},
		},
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *command) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.line)
	}
	return json.Unmarshal(b, &c.argv)
}

// args returns the program to start and its arguments.
func (c command) args() []string {
	if c.argv != nil {
		return c.argv
	}
	return []string{"bash", "-c", c.line}
}

// withBase returns the configuration of a box: what a model asks for, below
// what whoever started this server has set.
func (s *Server) withBase(wanted map[string]any) (json.RawMessage, error) {
	base := map[string]any{}
	if len(s.cfg.Sandbox) > 0 {
		if err := json.Unmarshal(s.cfg.Sandbox, &base); err != nil {
			return nil, box.Errorf(box.Fault, "configure", "cannot read the server's sandbox configuration: %w", err)
		}
	}
	merge(wanted, base)
	out, err := json.Marshal(wanted)
	if err != nil {
		return nil, box.Errorf(box.Fault, "configure", "cannot write sandbox configuration: %w", err)
	}
	return out, nil
}

// merge puts what over has into m, section by section.
func merge(m, over map[string]any) {
	for k, v := range over {
		sub, isMap := v.(map[string]any)
		if have, ok := m[k].(map[string]any); ok && isMap {
			merge(have, sub)
			continue
		}
		m[k] = v
	}
}

package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/sunaba-dev/sunaba/box"
)

type executeArgs struct {
	Name  string `json:"name" jsonschema:"a language (python, javascript, bash), or the name of another tool"`
	Input string `json:"input" jsonschema:"code of the language, or the tool's arguments as a JSON text"`
}

type executeOut struct {
	Output string `json:"output"`
}

// execute is the shape in which an agent's loop sees its hands: a name, a text
// in, a text out.
func (c call) execute(ctx context.Context, in executeArgs) (answer[executeOut], error) {
	name, args := in.Name, json.RawMessage(in.Input)
	if slices.Contains([]string{"python", "javascript", "bash"}, canonical(name)) {
		var err error
		if args, err = json.Marshal(codeArgs{Language: name, Code: in.Input}); err != nil {
			return answer[executeOut]{}, err
		}
		name = "run_code"
	}
	run, ok := c.tools[name]
	if !ok || name == "execute" {
		return answer[executeOut]{}, box.Errorf(box.Invalid, "execute", "cannot execute %q: it is neither a language nor another tool", name).
			WithHint("languages are python, javascript and bash; tools are those of tools/list")
	}
	res, err := run(ctx, c, args)
	if err != nil {
		return answer[executeOut]{}, err
	}
	var parts []string
	var others []sdk.Content
	for _, part := range res.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			parts = append(parts, t.Text)
		} else {
			others = append(others, part)
		}
	}
	out := executeOut{strings.Join(parts, "\n")}
	if res.IsError {
		return answer[executeOut]{}, &told{out.Output}
	}
	return answer[executeOut]{out, append([]sdk.Content{text(out.Output)}, others...)}, nil
}

// told is the failure of a tool whose words are made already.
type told struct{ text string }

// Error implements error.
func (t *told) Error() string { return t.text }

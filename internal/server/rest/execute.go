package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// maxExecute bounds the body of an execute call, which holds files, in bytes.
const maxExecute = 8 << 20

// executeRequest is a run in one call.
type executeRequest struct {
	Body struct {
		Language string          `json:"language,omitempty" maxLength:"32" doc:"The language of code."`
		Code     string          `json:"code,omitempty" doc:"A program's text."`
		Command  []string        `json:"command,omitempty" minItems:"1" maxItems:"4096" doc:"A program and its arguments, instead of language and code."`
		Args     []string        `json:"args,omitempty" maxItems:"4096" doc:"Arguments of the program that code is."`
		Input    json.RawMessage `json:"input,omitempty" doc:"Any JSON: the program finds it as input.json."`
		Files    []InputFile     `json:"files,omitempty" maxItems:"1000" doc:"Files that are in the box before the program starts."`
		Stdin    string          `json:"stdin,omitempty"`
		Sandbox  Sandbox         `json:"sandbox,omitempty"`
		Collect  *bool           `json:"collect,omitempty" doc:"List artifacts and read output.json; true if absent."`
		Strict   bool            `json:"strict,omitempty" doc:"Refuse a box of which this host cannot enforce everything."`
	}
}

// InputFile is a file for a box.
type InputFile struct {
	Path       string  `json:"path" minLength:"1" maxLength:"4096" doc:"Relative to the working folder."`
	Content    *string `json:"content,omitempty" doc:"Its text; or"`
	Base64     []byte  `json:"content_base64,omitempty" doc:"its bytes."`
	Executable bool    `json:"executable,omitempty"`
}

func (a *API) execute(ctx context.Context, in *executeRequest) (*box.Report, error) {
	b := in.Body
	req := box.ExecuteRequest{
		Sandbox: b.Sandbox.RawMessage, Language: b.Language, Code: b.Code, Argv: b.Command, Args: b.Args,
		Collect: b.Collect == nil || *b.Collect, Strict: b.Strict, Stdin: io.Reader(bytes.NewReader([]byte(b.Stdin))),
	}
	if (b.Language == "" && b.Code == "") == (b.Command == nil) {
		return nil, box.Errorf(box.Invalid, "execute", "cannot run this: it takes either language and code, or command")
	}
	if string(b.Input) != "null" {
		req.Input = b.Input
	}
	for _, f := range b.Files {
		data, err := either("files: "+f.Path, f.Content, f.Base64)
		if err != nil {
			return nil, err
		}
		req.Files = append(req.Files, box.File{Path: f.Path, Data: data, Exec: f.Executable})
	}
	rep, err := a.Service.Execute(ctx, server.CallerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	return rep, nil
}

// either returns what was given as text or in base64.
func either(what string, text *string, raw []byte) ([]byte, error) {
	switch {
	case text != nil && raw != nil:
		return nil, box.Errorf(box.Invalid, "read body", "cannot use %s: it is given as text and in base64", what)
	case text != nil:
		return []byte(*text), nil
	}
	return raw, nil
}

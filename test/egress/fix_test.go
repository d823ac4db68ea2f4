package egress

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/test/harness"
)

// What a denial names as the way out is one: whoever writes it where it belongs, as
// often as there is a denial, comes to where the program wanted to go. Before that
// nothing of it arrives.
func TestTheFixOfADenialLetsItThrough(t *testing.T) {
	f := theWorld(t)
	const hello = `b"told to the world"`
	for tier, u := range map[string]harness.User{"gvisor": harness.Users()[0], "process": harness.Users()[0].Trusting()} {
		for _, c := range []struct {
			name, allow, program, want string
			steps                      int // denials on the way
		}{
			{"a name, then a port that is never TLS", "", `R("ssh.example.com", 22, b"SSH-2.0-told to the world")`, "got b'SSH-2.0-world", 2},
			{"a name in plain HTTP", "api.example.com", `G("/told to the world".replace(" ", "-"))`, "HTTP/1.1 200 OK", 1},
			{"SSH where TLS was said", "ssh.example.com:22", `R("ssh.example.com", 22, b"SSH-2.0-told to the world")`, "got b'SSH-2.0-world", 1},
			{"raw bytes where TLS was said", "raw.example.com:6379", `R("raw.example.com", 6379, ` + hello + `)`, "got b'told to the world'", 1},
			{"HTTP where TLS was said", "api.example.com:8080", `H(b"GET /told HTTP/1.1\r\nHost: api.example.com:8080\r\n\r\n", port=8080)`, "HTTP/1.1 200 OK", 1},
			{"a server that begins", "ssh.example.com:22", `(lambda s: s.recv(99))(K("ssh.example.com", 22))`, "b'SSH-2.0-world", 1},
			{"a name with a private address", "priv.example.com:5432/tcp", `R("priv.example.com", 5432, ` + hello + `)`, "got b'told to the world'", 1},
			{"a private address", "", `R("10.20.30.40", 5432, ` + hello + `)`, "got b'told to the world'", 1},
		} {
			t.Run(tier+"/"+c.name, func(t *testing.T) {
				how := []string{"--network", "allowlist"}
				if c.allow != "" {
					how = append(how, "--allow", c.allow)
				}
				for step := 0; ; step++ {
					f.take(t)
					args := append([]string{"--resolver", resolverAddr}, how...)
					rep := harness.Report(t, u, append(args, "--", "python3", "-c", helpers+"print(tries(lambda: "+c.program+"))")...)
					came := strings.Contains(text(f.take(t)), "told")
					if strings.HasPrefix(rep.StdoutClean, c.want) {
						if step != c.steps || !came && strings.Contains(c.program, "told") {
							t.Errorf("after %d denials, not %d (%q): %s", step, c.steps, how, rep.StdoutClean)
						}
						return
					}
					i := slices.IndexFunc(rep.Network.Denied, func(d box.Denial) bool { return d.Fix != "" })
					if i < 0 || came || step == c.steps {
						t.Fatalf("with %q: %s, denied %+v; came to the world: %v", how, rep.StdoutClean, rep.Network.Denied, came)
					}
					how = follow(t, u, how, rep.Network.Denied[i].Fix)
				}
			})
		}
	}
}

// follow does what a fix says.
func follow(t *testing.T, u harness.User, how []string, fix string) []string {
	t.Helper()
	if line, ok := strings.CutPrefix(fix, "a policy file with "); ok {
		file := filepath.Join(harness.Dir(t, u), "policy.yaml")
		if err := os.WriteFile(file, []byte("version: 1\nhosts:\n  "+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		harness.Give(t, u, file)
		return []string{"--network-policy", file}
	}
	entry, old, _ := strings.Cut(fix, " in place of ")
	if i := slices.Index(how, old); i >= 0 {
		how = slices.Delete(slices.Clone(how), i-1, i+1)
	}
	return append(how, "--allow", entry)
}

func text(all []seen) string {
	var out strings.Builder
	for _, s := range all {
		if s.Kind == "data" {
			out.WriteString(s.What)
		}
	}
	return out.String()
}

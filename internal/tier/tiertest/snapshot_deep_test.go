package tiertest

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sunaba-dev/sunaba/box"
)

// deep makes so many folders, one in the other, with names of so many bytes.
func deep(n, name int) string {
	return fmt.Sprintf("cd /workspace; python3 -c \"\nimport os\nfor _ in range(%d):\n  os.mkdir('d' * %d); os.chdir('d' * %d)\nopen('last', 'w').write('there')\"", n, name, name)
}

// A tree that is deeper than a copy of files can have is refused in words, and the box
// goes on; and so is one with too many bytes of paths.
func TestATreeThatIsTooDeepIsNotCopiedAndItsBoxGoesOn(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	made.Limits.Files = 20_000
	for what, row := range map[string]struct{ script, says string }{
		"names of 200 bytes": {deep(4_000, 200), "deep in folders"},
		"names of one byte":  {deep(9_000, 1), "deep in folders"},
		"many paths":         {deep(30, 250) + "; python3 -c \"\nimport os\nfor _ in range(30): os.chdir('d' * 250)\nfor i in range(5000): open(str(i), 'w')\"", "paths have more than"},
	} {
		b := p.create(t, made)
		g := use(t, b)
		run(t, g, row.script)
		_, err := b.(box.Snapshotter).Snapshot(t.Context(), box.SnapshotFiles, func(_ string, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
		if box.KindOf(err) != box.Conflict || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", what, err)
		}
		run(t, g, "true")
		if what == "names of 200 bytes" { // in a copy of the memory it is as it was
			leave(t, g)
			c := p.restore(t, made, p.copyMemory(t, b))
			run(t, use(t, c), "cd /workspace; cd d*; cd d*; ls > /dev/null")
			p.destroy(t, c)
		}
		p.destroy(t, b)
	}
	p.empty(t)
}

// A tree may be as deep as programs can name it in one call.
func TestATreeThatProgramsCanNameIsCopied(t *testing.T) {
	p := newPlace(t, box.TierGvisor)
	made := memorySpec()
	b := p.create(t, made)
	run(t, use(t, b), deep(15, 250))
	c := p.restore(t, made, p.copyFiles(t, b))
	if out := run(t, use(t, c), "find /workspace -name last | xargs cat"); out != "there" {
		t.Errorf("the copy says %q", out)
	}
	p.destroy(t, b)
	p.destroy(t, c)
}

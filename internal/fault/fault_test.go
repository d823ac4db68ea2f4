package fault

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachMomentOfTheTableIsAtOnePlaceAndEachPlaceInTheTable(t *testing.T) {
	call := regexp.MustCompile(`fault\.Here\("([^"]*)"\)`)
	any := regexp.MustCompile(`fault\.Here\(`)
	name := regexp.MustCompile(`^[a-z]+\.[a-z]+(-[a-z]+)*$`)
	at := map[string][]string{}
	for _, root := range []string{"../../internal", "../../cmd", "../../box"} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || filepath.Dir(p) == "../../internal/fault" {
				return err
			}
			src, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			found := call.FindAllSubmatch(src, -1)
			if n := len(any.FindAll(src, -1)); n != len(found) {
				t.Errorf("%s: %d calls, %d with a name that can be read here", p, n, len(found))
			}
			for _, m := range found {
				at[string(m[1])] = append(at[string(m[1])], p)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range Points() {
		if len(at[p]) != 1 {
			t.Errorf("%s is at %d places: %v", p, len(at[p]), at[p])
		}
		if !name.MatchString(p) {
			t.Errorf("%q is no name of a moment", p)
		}
	}
	for p, where := range at {
		if !slices.Contains(Points(), p) {
			t.Errorf("%s, in %v, is not in the table", p, where)
		}
	}
	if all := slices.Sorted(slices.Values(Points())); len(slices.Compact(all)) != len(Points()) {
		t.Error("a name is twice in the table")
	}
}

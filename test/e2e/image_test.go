package e2e

import (
	"regexp"
	"testing"

	"github.com/sunaba-dev/sunaba/test/harness"
)

func TestTheReportNamesAnImageByItsDigestIfThatIsFixed(t *testing.T) {
	for image, want := range map[string]string{"host": `^host$`, "base": `^base@sha256:[0-9a-f]{64}$`} {
		if rep := harness.Report(t, harness.Users()[0], "--image", image, "--", "true"); !regexp.MustCompile(want).MatchString(rep.Image) {
			t.Errorf("image %s is reported as %q: %s", image, rep.Image, whole(rep))
		}
	}
}

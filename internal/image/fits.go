package image

import (
	"io/fs"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// Fits reports an error of kind [box.Invalid] if no folder (or, if dir is false, no
// file) can be mounted at target in a box of this image: if the image has something
// else there, or a file or link above it. Nothing may be there: then a place is made.
func (i *Image) Fits(target string, dir bool) error {
	e, err := erofs.Lookup(i.File, target)
	if err != nil {
		return box.Errorf(box.Unusable, "mount", "cannot look for %s: %w", target, err)
	}
	if why := inTheWay(target, e.Path, e.Mode, dir); why != "" {
		return box.Errorf(box.Invalid, "mount", "cannot mount anything at %s: %s", target, why).
			WithHint("choose a place where nothing is, such as /data")
	}
	return nil
}

// inTheWay says why nothing can be mounted at target, where the last thing on the way
// to it is at path; "" if it can.
func inTheWay(target, path string, mode fs.FileMode, dir bool) string {
	what := "a file"
	switch {
	case mode.Type() == fs.ModeSymlink:
		what = "a link"
	case mode.IsDir() && (path != target || dir):
		return ""
	case mode.IsDir():
		return "the image has a folder there, and what is mounted is a file"
	case path == target && !dir:
		return ""
	}
	if path == target {
		return "the image has " + what + " there"
	}
	return "the image has " + what + " at " + path
}

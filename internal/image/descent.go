package image

import (
	"os"
	"path"
	"strings"

	"github.com/sunaba-dev/sunaba/internal/image/erofs"
)

// descent keeps the folders from the top of an extracted tree down to where a
// walk of its image is, all open: every file is reached by one name from its
// folder's descriptor, so no link and no renamed folder can lead elsewhere.
type descent struct {
	stack []*folder
	left  func(*folder) error // called when all of a folder has been seen
}

type folder struct {
	root    *os.Root
	entry   erofs.Entry
	entries int // names in it so far
}

func newDescent(dir string, left func(*folder) error) (*descent, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &descent{stack: []*folder{{root: root}}, left: left}, nil
}

// parent returns the folder that an entry of the walk lies in, after leaving
// those that are complete. For the root it is the root itself.
func (d *descent) parent(e erofs.Entry) (*folder, error) {
	if e.Path == "/" {
		d.stack[0].entry = e
		return d.stack[0], nil
	}
	if err := d.leave(path.Dir(e.Path)); err != nil {
		return nil, err
	}
	top := d.stack[len(d.stack)-1]
	top.entries++
	return top, nil
}

// enter opens the folder of an entry, as the next that entries lie in.
func (d *descent) enter(e erofs.Entry) error {
	root, err := d.stack[len(d.stack)-1].root.OpenRoot(path.Base(e.Path))
	if err != nil {
		return err
	}
	d.stack = append(d.stack, &folder{root: root, entry: e})
	return nil
}

// leave closes the folders that dir is not in; all of them for "".
func (d *descent) leave(dir string) error {
	for len(d.stack) > 0 {
		top := d.stack[len(d.stack)-1]
		if dir != "" && (top.entry.Path == "/" || dir == top.entry.Path || strings.HasPrefix(dir, top.entry.Path+"/")) {
			return nil
		}
		err := d.left(top)
		top.root.Close()
		d.stack = d.stack[:len(d.stack)-1]
		if err != nil {
			return err
		}
	}
	return nil
}

// close lets go of everything, complete or not.
func (d *descent) close() {
	for _, f := range d.stack {
		f.root.Close()
	}
	d.stack = nil
}

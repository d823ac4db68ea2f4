// Package image makes and keeps the root file systems of boxes.
//
// A root file system is one EROFS file named by the SHA-256 digest of its
// bytes. Two kinds are made, both from the running host and without any tool:
//
//   - host: a skeleton of about a megabyte with a minimal /etc and empty
//     /home, /root, /var and so on, over which the host's own /usr is shown
//     read-only. It is ready at once.
//   - base: everything in one image, from the files of a list of installed
//     packages and all that they depend on. It is made once, takes a few
//     hundred megabytes, and is the same bytes wherever the same package
//     versions are installed.
//
// What leaves the host's /etc is an explicit list with a reason beside each
// line (see etcFiles); keys, accounts and anything that not everybody on the
// host may read never do.
//
// An image is verified when it is opened, through the descriptor that the
// caller then uses. See [Store] for what that is worth.
package image

import (
	"os"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// InitPath is where the program given as Init lies in every image.
const InitPath = "/.sunaba/init"

// The ordinary user of every image, and its home.
const (
	UserID   = 1000
	GroupID  = 1000
	UserHome = "/home/user"
)

// Image is a root file system that was verified and is open.
type Image struct {
	Name   box.ImageName
	Digest string   // "sha256:" and 64 hexadecimal digits, over the bytes of File
	File   *os.File // read-only; the verified bytes; the caller closes it
	// Binds are host folders that the box needs at the same path, read-only,
	// for this image to be complete. Their mount points are in the image.
	Binds []box.Mount
	Path  string   // value for PATH inside
	Notes []string // what was left out when it was made, in words
}

// short makes a fault that is a full disk, or another shortage of this host's, one
// that passes. Other errors stay.
func short(op string, err error) error {
	if err == nil || box.KindOf(err) != box.Fault || !host.IsShortage(err) {
		return err
	}
	return box.Errorf(box.Unavailable, op, "%w", err).WithHint("make room on the disk of the state folder")
}

// Close closes File.
func (i *Image) Close() error { return i.File.Close() }

// Info describes an image that a store holds. Only Digest, Size and Built are
// known of an image whose record was lost.
type Info struct {
	Name   box.ImageName
	Digest string
	Size   int64 // bytes
	Built  time.Time
	Used   time.Time // when it was opened last
	Notes  []string
}

func (i Info) lastUsed() time.Time {
	if i.Used.IsZero() {
		return i.Built
	}
	return i.Used
}

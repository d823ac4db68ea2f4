package frame

import (
	"os"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// limitVolume is the limit that a full volume is told as. It is none of the box's own,
// and ends nothing.
const limitVolume = "volume"

// shelf is a volume of a box that may write to it. Its mount is held for as long as
// this front has the box.
type shelf struct {
	name string
	file *os.File
}

// KeepVolumes keeps the mounts of volumes, in their order, to see whether they are full.
// A front that takes the box up later has none.
func (b *Box) KeepVolumes(all []box.Volume, trees []*os.File) error {
	for i, v := range all {
		if v.ReadOnly {
			continue
		}
		f, err := host.Dup(trees[i])
		if err != nil {
			return err
		}
		b.shelves.Lock()
		b.shelves.all = append(b.shelves.all, shelf{v.Name, f})
		b.shelves.Unlock()
	}
	return nil
}

// dropVolumes lets go of them: a file system is written out when nobody has it.
func (b *Box) dropVolumes() {
	b.shelves.Lock()
	defer b.shelves.Unlock()
	for _, s := range b.shelves.all {
		s.file.Close()
	}
	b.shelves.all = nil
}

// fullVolumes lists those that are full now.
func (b *Box) fullVolumes() (hits []box.LimitHit) {
	b.shelves.Lock()
	defer b.shelves.Unlock()
	for _, s := range b.shelves.all {
		var st syscall.Statfs_t
		if err := syscall.Fstatfs(int(s.file.Fd()), &st); err != nil {
			continue
		}
		size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
		switch {
		case free <= min(1<<20, size/32): // what ext4 refuses as a whole may leave so much
			hits = append(hits, box.LimitHit{Limit: limitVolume, Source: "size of volume " + s.name})
		case st.Ffree == 0:
			hits = append(hits, box.LimitHit{Limit: limitVolume, Source: "inodes of volume " + s.name})
		}
	}
	return hits
}

package gvisor

import (
	"fmt"
	"reflect"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/kernfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// meet is called before a task opens a file or makes a task. The first one of a
// kernel, which may be the copy of another, has that kernel's boot id made new
// before anybody can read it, and its memory watched.
func (r *reporter) meet(t *kernel.Task) {
	k := t.Kernel()
	if r.met.Load() == k {
		return
	}
	r.meeting.Lock()
	defer r.meeting.Unlock()
	if r.met.Load() == k {
		return
	}
	if err := newBootID(t); err != nil {
		// Two boxes would be taken for the same one.
		t.Warningf("ends: %v", err)
		k.Kill(linux.WaitStatusTerminationSignal(linux.SIGKILL))
	}
	r.memory.begin(t)
	r.met.Store(k)
}

// newBootID gives the file other contents: gVisor draws them once, as it makes the
// file, and a copy has them, too.
func newBootID(t *kernel.Task) error {
	first := t.Kernel().GlobalInit().Leader()
	root := first.FSContext().RootDirectory()
	defer root.DecRef(t)
	f, err := t.Kernel().VFS().OpenAt(t, first.Credentials(), &vfs.PathOperation{
		Root: root, Start: root, Path: fspath.Parse(bootIDFile),
	}, &vfs.OpenOptions{Flags: linux.O_RDONLY})
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", bootIDFile, err)
	}
	defer f.DecRef(t)
	d, ok := f.Dentry().Impl().(*kernfs.Dentry)
	if !ok {
		return fmt.Errorf("cannot renew %s: it is %T", bootIDFile, f.Dentry().Impl())
	}
	v := reflect.Indirect(reflect.ValueOf(d.Inode()))
	if v.Kind() == reflect.Struct {
		if data := v.FieldByName("StaticData"); data.IsValid() {
			if text, ok := data.Addr().Interface().(*vfs.StaticData); ok {
				var u [16]byte
				if _, err := rand.Read(u[:]); err != nil {
					return fmt.Errorf("cannot renew %s: %w", bootIDFile, err)
				}
				u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // RFC 9562: random
				text.Data = fmt.Sprintf("%x-%x-%x-%x-%x\n", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
				return nil
			}
		}
	}
	return fmt.Errorf("cannot renew %s: it is %T", bootIDFile, d.Inode())
}

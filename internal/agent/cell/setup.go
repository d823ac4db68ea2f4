package cell

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/confine"
	"github.com/sunaba-dev/sunaba/internal/host/hostfs"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// setup builds the jail, puts the seeds in, and gives up every right.
func (c *cell) setup(body json.RawMessage, files []*os.File) (any, error) {
	if err := json.Unmarshal(body, &c.set); err != nil {
		return nil, err
	}
	conf := jail.Config{
		Dir: c.set.Dir, StoreBytes: c.set.StoreBytes, StoreFiles: c.set.StoreFiles,
		Kept: c.set.Kept, Writable: c.set.Writable, ShmBytes: c.set.ShmBytes, Hostname: c.set.Hostname,
	}
	seeds, program, err := c.takeFiles(files, &conf)
	if err != nil {
		return nil, err
	}
	if err := c.server.KeepWords(c.set.Dir); err != nil {
		return nil, err
	}
	if err := host.PrivateMounts(); err != nil {
		return nil, refused(err)
	}
	if err := c.cloneSources(&conf); err != nil {
		return nil, err
	}
	// Before rights go: it makes a time namespace.
	if c.starter, err = newStarter(); err != nil {
		return nil, refused(err)
	}
	conf.RootApart = len(c.set.Sources) > 0 // a folder that all boxes of its user share
	for i := range c.set.Apart {
		conf.Binds[i].Apart = true
	}
	if c.set.Linked { // while devices can be named, and before rights go
		if c.link, err = nic.Make(tunNames(conf.Devices)...); err != nil {
			return nil, refused(err)
		}
	}
	weak, err := jail.Build(conf)
	for _, m := range conf.Binds {
		m.Tree.Close() // attached by now
	}
	conf.Root.Close()
	if err != nil {
		return nil, refused(err)
	}
	fresh, err := c.space()
	if err != nil {
		return nil, err
	}
	if seeds != nil {
		if err := agent.Place(seeds, "/"); err != nil {
			return nil, err
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("cannot close own memory to programs: %w", err)
	}
	for res, v := range c.set.CellLimits {
		// One that is lower already, the caller's own, stays: it cannot be raised.
		var now unix.Rlimit
		if err := unix.Getrlimit(res, &now); err != nil {
			return nil, fmt.Errorf("cannot read limit %d: %w", res, err)
		}
		v = min(v, now.Max)
		if err := unix.Setrlimit(res, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return nil, fmt.Errorf("cannot set limit %d to %d: %w", res, v, err)
		}
	}
	// All threads first: one that is confined answers differently from then on.
	if err := confine.DropRights(); err != nil {
		return nil, refused(err)
	}
	ready := Ready{Fresh: fresh}
	if ready.Applied, err = c.starter.confine(c.set.Domain); err != nil {
		return nil, refused(err)
	}
	ready.Applied.Weak = append(weak, ready.Applied.Weak...)
	spareThreads(spare)
	if c.set.Agent != nil {
		if ready.Agent, err = c.startAgent(program); err != nil {
			return nil, err
		}
	}
	if ready.Tasks, err = ownTasks(); err != nil {
		return nil, err
	}
	c.isSetUp = true
	return ready, nil
}

// tunNames are where the device file for TUN may be: among the box's own, which a
// front made that is root, and the host's.
func tunNames(devices *os.File) []string {
	if devices == nil {
		return []string{nic.TUN}
	}
	return []string{host.FDPath(devices.Fd()) + "/tun", nic.TUN}
}

// refused says that this host does not let a box be: doctor tries the same.
func refused(err error) error { return box.Errorf(box.Unusable, "create box", "%w", err) }

// takeFiles hands out the files that came with the request, by their order.
func (c *cell) takeFiles(files []*os.File, conf *jail.Config) (seeds, program *os.File, err error) {
	next := func(what string) *os.File {
		if len(files) == 0 {
			if err == nil {
				err = fmt.Errorf("cannot set up box: no file came for %s", what)
			}
			return nil
		}
		f := files[0]
		files = files[1:]
		return f
	}
	if len(c.set.Sources) == 0 {
		conf.Root = next("the root")
		if c.set.HasStore {
			conf.Store = next("the store")
		}
		if c.set.HasDevices {
			conf.Devices = next("the devices")
		}
		for _, target := range c.set.Binds {
			conf.Binds = append(conf.Binds, jail.Bind{Tree: next(target), Target: target})
		}
	}
	if c.set.HasSeeds {
		seeds = next("the seeds")
	}
	if a := c.set.Agent; a != nil && a.HasProgram {
		program = next("the agent")
	}
	if a := c.set.Agent; a != nil && a.HasTree {
		c.tree = next("the image")
	}
	if err == nil && len(files) > 0 {
		err = fmt.Errorf("cannot set up box: %d files too many came", len(files))
	}
	return seeds, program, err
}

// cloneSources makes the mounts that an ordinary user's front could not: the
// root is the first source, the binds follow.
func (c *cell) cloneSources(conf *jail.Config) error {
	for i, s := range c.set.Sources {
		f, info, err := hostfs.OpenMountSource(s.Path, nil)
		if err != nil {
			return err
		}
		if !hostfs.IsInode(info, s.Dev, s.Ino) {
			f.Close()
			return fmt.Errorf("cannot mount %s: it was replaced since it was checked", s.Path)
		}
		tree, err := hostfs.CloneMount(f, hostfs.MountAttr{ReadOnly: s.ReadOnly, Recursive: info.IsDir()})
		f.Close()
		if err != nil {
			return refused(err)
		}
		if i == 0 {
			conf.Root = tree
		} else {
			conf.Binds = append(conf.Binds, jail.Bind{Tree: tree, Target: c.set.Binds[i-1]})
		}
	}
	return nil
}

// space asks the file system behind the writable places, and who keeps shared
// memory.
func (c *cell) space() (wire.Space, error) {
	var st, shm unix.Statfs_t
	for path, to := range map[string]*unix.Statfs_t{c.set.Writable[0].Path: &st, "/dev/shm": &shm} {
		if err := unix.Statfs(path, to); err != nil {
			return wire.Space{}, fmt.Errorf("cannot ask for space: %w", err)
		}
	}
	segments, err := host.SharedSegments()
	if err != nil {
		return wire.Space{}, err
	}
	return wire.Space{
		Bytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bavail) * st.Bsize,
		Files: int64(st.Files), FreeFiles: int64(st.Ffree),
		Shared: int64(shm.Blocks-shm.Bfree)*shm.Bsize + segments,
	}, nil
}

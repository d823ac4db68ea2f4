package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
)

// sandboxFlags are the flags of `sunaba run` that stand for keys of the
// configuration file, for commands that send these keys to whoever makes boxes.
type sandboxFlags struct {
	file     string
	settings []setting
}

func (f *sandboxFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.file, "config", "", "")
	fs.Func("tier", "", func(v string) error {
		f.settings = append(f.settings, setting{"tier", "runtime", v})
		return nil
	})
	fs.Func("mount", "", func(v string) error {
		s, err := mountSetting(v)
		f.settings = append(f.settings, s)
		return err
	})
	for _, k := range keyFlags() {
		set := func(v string) error {
			f.settings = append(f.settings, setting{k.Flag, k.Name, v})
			return nil
		}
		if k.Default == "false" {
			fs.BoolFunc(k.Flag, "", set)
		} else {
			fs.Func(k.Flag, "", set)
		}
	}
}

// sandbox returns what was set, as JSON. It is judged twice: here, so that a
// mistake is told in the words of the command line, and by whoever makes the box.
func (f *sandboxFlags) sandbox() (json.RawMessage, error) {
	out, _, err := f.withPolicy()
	return out, err
}

// withPolicy returns the policy of its network, too; nil without one.
func (f *sandboxFlags) withPolicy() (json.RawMessage, *rules.Policy, error) {
	run := &runFlags{cfg: config.Default()}
	if err := run.configure(f.file, f.settings); err != nil {
		return nil, nil, err
	}
	out, err := sandboxOf(run.cfg)
	return out, run.net, err
}

// sandboxOf writes what is not as in an empty file.
func sandboxOf(c config.Config) (json.RawMessage, error) {
	d := config.Default()
	top, limits, files, cycle := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	put(top, "runtime", c.Runtime, d.Runtime)
	put(top, "trust", c.Trust, d.Trust)
	put(top, "image", c.Image, d.Image)
	put(top, "user", c.User, d.User)
	if !maps.Equal(c.Env, d.Env) {
		top["env"] = c.Env
	}
	l, dl := c.Limits, d.Limits
	put(limits, "cpu", fmt.Sprintf("%dm", l.MilliCPU), fmt.Sprintf("%dm", dl.MilliCPU))
	put(limits, "memory", l.Memory, dl.Memory)
	put(limits, "timeout_sec", l.Timeout.Seconds(), dl.Timeout.Seconds())
	put(limits, "idle_sec", l.Idle.Seconds(), dl.Idle.Seconds())
	put(limits, "grace_sec", l.Grace.Seconds(), dl.Grace.Seconds())
	put(limits, "max_processes", l.Processes, dl.Processes)
	put(limits, "max_open_files", l.OpenFiles, dl.OpenFiles)
	put(limits, "disk", l.Disk, dl.Disk)
	put(limits, "max_files", l.Files, dl.Files)
	put(limits, "max_output", l.Output, dl.Output)
	put(limits, "on_limit", l.OnLimit, dl.OnLimit)
	for _, m := range c.Mounts {
		key := "read_write_mounts"
		if m.ReadOnly {
			key = "read_only_mounts"
		}
		list, _ := files[key].([]any)
		files[key] = append(list, map[string]any{"host": m.Source, "container": m.Target})
	}
	for _, v := range c.Volumes {
		list, _ := top["volumes"].([]any)
		top["volumes"] = append(list, map[string]any{"name": v.Name, "container": v.Target, "read_only": v.ReadOnly})
	}
	put(files, "writable_dir", c.Workdir, d.Workdir)
	if !slices.Equal(c.NoMount, d.NoMount) {
		files["no_mount"] = c.NoMount
	}
	if len(c.HostPrefixes) > 0 {
		files["host_prefixes"] = c.HostPrefixes
	}
	put(cycle, "reuse", c.Reuse, d.Reuse)
	put(cycle, "pool_size", c.PoolSize, d.PoolSize)
	if c.Net != d.Net {
		network := map[string]any{"mode": c.Net.Mode}
		if len(c.Allowlist) > 0 {
			network["allowlist"] = c.Allowlist
		}
		if c.Rules != "" {
			network["rules"] = json.RawMessage(c.Rules)
		}
		if c.PolicyFile != "" { // the daemon reads no file that a caller names
			rules, err := sendablePolicy(c.PolicyFile)
			if err != nil {
				return nil, err
			}
			network["rules"] = rules
		}
		top["network"] = network
	}
	for name, section := range map[string]map[string]any{"resource_limits": limits, "filesystem": files, "lifecycle": cycle} {
		if len(section) > 0 {
			top[name] = section
		}
	}
	if len(top) == 0 {
		return nil, nil
	}
	out, err := json.Marshal(top)
	if err != nil {
		return nil, box.Errorf(box.Fault, "configure", "cannot write sandbox configuration: %w", err)
	}
	return out, nil
}

func put[T comparable](m map[string]any, key string, v, usual T) {
	if v != usual {
		m[key] = v
	}
}

package box

import (
	"io"
	"io/fs"
	"time"
)

// TierName names a tier, in configuration and in results.
type TierName string

// The tiers of the ladder, from strongest walls to weakest, and those that
// stand beside it.
const (
	TierAuto        TierName = "auto"
	TierMicroVM     TierName = "microvm"
	TierFirecracker TierName = "firecracker"
	TierGvisor      TierName = "gvisor"
	TierContainer   TierName = "container"
	TierDocker      TierName = "docker"
	TierProcess     TierName = "process"
	TierWasm        TierName = "wasm"
)

// TierNames lists every name that configuration may use, built or not.
func TierNames() []TierName {
	return []TierName{TierAuto, TierProcess, TierGvisor, TierContainer, TierDocker, TierFirecracker, TierMicroVM, TierWasm}
}

// Trust says how much the caller trusts the code, not the code's author.
type Trust string

// Trust levels, from least to most.
const (
	Hostile   Trust = "hostile"
	Untrusted Trust = "untrusted"
	Internal  Trust = "internal"
	Trusted   Trust = "trusted"
)

// Trusts lists the levels from least to most trusted.
func Trusts() []Trust { return []Trust{Hostile, Untrusted, Internal, Trusted} }

// ImageName names a root file system.
type ImageName string

// The images every tier with an operating system offers.
const (
	// ImageHost is a generated skeleton with the host's /usr read-only.
	ImageHost ImageName = "host"
	// ImageBase is one reproducible EROFS image, named by its digest.
	ImageBase ImageName = "base"
)

// OnLimit says what happens when a program runs into a limit that it could
// also handle itself.
type OnLimit string

// OnLimit values.
const (
	// LimitRecord lets the program see the error and records it.
	LimitRecord OnLimit = "record"
	// LimitKill ends the box.
	LimitKill OnLimit = "kill"
)

// Limits bounds one box. Zero means "no limit" only where it says so.
type Limits struct {
	MilliCPU  int64         `json:"milli_cpu"`      // thousandths of one core, >= 10
	Memory    int64         `json:"memory_bytes"`   // guest memory, >= 16 MiB
	Timeout   time.Duration `json:"timeout_ns"`     // wall clock of one Run; 0 = none
	Idle      time.Duration `json:"idle_ns"`        // no byte in or out for this long; 0 = none
	Grace     time.Duration `json:"grace_ns"`       // between SIGTERM and SIGKILL, at a deadline
	Processes int64         `json:"max_processes"`  // tasks of the program's user, threads included
	OpenFiles int64         `json:"max_open_files"` // descriptors of one process
	Disk      int64         `json:"disk_bytes"`     // all writable places together
	Files     int64         `json:"max_files"`      // inodes in all writable places together
	Output    int64         `json:"max_output"`     // stdout and stderr together, in bytes
	OnLimit   OnLimit       `json:"on_limit"`       // for Processes, OpenFiles, Disk and Files
}

// Processors is MilliCPU in whole processors, rounded up: as many as the box is
// shown, where its tier can say so.
func (l Limits) Processors() int64 { return (l.MilliCPU + 999) / 1000 }

// Mount shows a host folder or file in the box.
type Mount struct {
	Source   string `json:"host"`      // absolute path on the host
	Target   string `json:"container"` // absolute, clean path in the box
	ReadOnly bool   `json:"read_only"`
}

// NetMode says what network a box has.
type NetMode string

// Net modes.
const (
	// NetNone gives a loopback interface and nothing else.
	NetNone NetMode = "none"
	// NetAllowlist gives a second interface, whose other end is a [Link]: what
	// comes out of the box there is answered by the gateway, by the box's rules, or
	// by nobody.
	NetAllowlist NetMode = "allowlist"
)

// Net is the network of a box. A tier sees a mode and makes a link, and never
// sees a list of allowed names.
type Net struct {
	Mode NetMode `json:"mode"`
}

// Seed is a file that is in the box before its program starts.
type Seed struct {
	Path string      // absolute path in the box, below Spec.Workdir
	Mode fs.FileMode // permission bits; the program's user owns it
	Size int64       // exact; fewer or more bytes are an error
	Open func() (io.ReadCloser, error)
}

// Spec is a decided, immutable wish for one box. It never holds a secret.
type Spec struct {
	ID        ID
	Tenant    string // owner; "local" for the command line
	Principal string // who asked
	Image     ImageName
	Workdir   string // absolute; writable; where programs start
	Limits    Limits
	Mounts    []Mount
	Volumes   []Volume
	NoMount   []string // host paths whose contents may not be shown, whatever name asks for them
	Net       Net
	Seeds     []Seed
	Hostname  string
	// Lasting makes a box that outlives this process and has an agent inside:
	// see the interface of that name. Limits.Timeout, Idle and Output are then not
	// the box's but each program's own.
	Lasting bool
}

// User says who a program is inside the box. Neither has any power outside.
type User string

// Users that every tier with an operating system knows.
const (
	UserOrdinary User = "user" // uid 1000, the default
	UserRoot     User = "root" // guest root without host power; a tier may refuse it
)

// A Command is one program run.
type Command struct {
	Argv []string // Argv[0] is looked up in PATH inside the box if it has no slash
	Env  []string // KEY=VALUE; the whole environment, nothing is inherited
	Dir  string   // absolute; empty means Spec.Workdir
	User User
	TTY  *WindowSize // non-nil gives a fresh pseudo-terminal of that size
}

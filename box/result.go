package box

import (
	"fmt"
	"time"
)

// Cause says why a run ended. It comes from whoever enforced the end: the host
// kernel's counters, the guest kernel, or our own clocks. It is never guessed
// from an exit code.
type Cause string

// Causes.
const (
	Exited      Cause = "exited"      // the program returned a code
	Signaled    Cause = "signaled"    // a signal ended it, not ours
	Deadline    Cause = "deadline"    // Limits.Timeout
	Idle        Cause = "idle"        // Limits.Idle
	OutOfMemory Cause = "outofmemory" // Limits.Memory
	OutputLimit Cause = "outputlimit" // Limits.Output
	DiskLimit   Cause = "disklimit"   // Limits.Disk or Limits.Files with on_limit: kill
	ProcLimit   Cause = "proclimit"   // Limits.Processes or OpenFiles with on_limit: kill
	Canceled    Cause = "canceled"    // the caller ended it
	Lost        Cause = "lost"        // the box died and nobody saw how its program ended
)

// Causes lists every cause.
func Causes() []Cause {
	return []Cause{Exited, Signaled, Deadline, Idle, OutOfMemory, OutputLimit, DiskLimit, ProcLimit, Canceled, Lost}
}

// LimitHit is one limit that a program touched.
type LimitHit struct {
	// Limit is the configuration name: memory, cpu, timeout_sec, idle_sec,
	// max_processes, max_open_files, disk, max_files, max_output; or volume, for
	// one that is full, which Source names.
	Limit string `json:"limit"`
	// Source names the account: "host cgroup v1 memory.oom_control", "guest
	// kernel", "clock", "output counter", "watchdog".
	Source string `json:"source"`
	// Ended is true for the one that ended the run.
	Ended bool `json:"ended"`
}

// Usage is what a run consumed. A field that this host cannot measure is zero
// and named in Weak.
type Usage struct {
	CPU        time.Duration
	Wall       time.Duration
	MemoryPeak int64 // bytes, the box's runtime included
	Written    int64 // bytes in the box's writable places at the end
}

// Result is what became of a command.
type Result struct {
	Cause    Cause
	ExitCode int // valid when Cause is Exited
	Signal   int // valid when Cause is Signaled
	Limits   []LimitHit
	Usage    Usage
}

// Stop is the reason a caller gives for ending a run, through
// context.WithCancelCause.
type Stop struct {
	Cause  Cause
	Limit  string // configuration name, for LimitHit; empty if none
	Source string
	Grace  time.Duration // time between SIGTERM and SIGKILL; 0 = kill at once
}

// Error implements error.
func (s *Stop) Error() string { return fmt.Sprintf("stop: %s", s.Cause) }

// Caps says in words what a tier can do on this host.
type Caps struct {
	Usable  bool
	Steps   []Step   // in the order in which a box needs them
	Weak    []string // what cannot be enforced, one sentence each
	Missing []string // why it is not usable, one sentence each
}

// StepState is the outcome of one probe.
type StepState string

// Step states.
const (
	Works   StepState = "works"
	Weak    StepState = "weak"
	Missing StepState = "missing"
)

// Step is one thing that was really tried.
type Step struct {
	Name   string    `json:"name"`
	State  StepState `json:"state"`
	Detail string    `json:"detail"`           // what was seen
	Advice string    `json:"advice,omitempty"` // what to do about it
}

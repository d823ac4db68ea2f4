package box

import (
	"context"
	"io"
	"net"
	"time"
)

// Lasting is implemented by boxes that were made with [Spec.Lasting]: they have
// an agent inside, and outlive the process that made them.
type Lasting interface {
	Box
	// Agent opens a new byte stream to the box's agent, on which it serves as if
	// there had been none before. Streams are independent of each other.
	Agent(context.Context) (net.Conn, error)
	// Ended is closed when the box has ended by itself: its first process died,
	// or its runtime did. Account then says why, as far as it is known.
	Ended() <-chan struct{}
	// Account is what the enforcing sides have counted since the box was made.
	Account(context.Context) (Account, error)
	// Detach gives the box up without ending it, for Tier.Recover in another
	// process. Nothing else may be called afterwards.
	Detach()
}

// Account is a box's account up to now.
type Account struct {
	Usage
	// Limits that were touched, each once.
	Limits []LimitHit
	// MemoryKills is how many times a program was ended for want of memory.
	MemoryKills int64
	// Ending is what is known of how a box that ended by itself did, in words; empty
	// while it stands.
	Ending string `json:",omitempty"`
}

// Guest is a running box as its users see it: what its agent offers. Methods
// are safe for concurrent use, and each fails with an *[Error] whose kind tells
// what to do: NotFound for a process, file or context that is not there,
// Invalid, Denied (the box's own kernel refuses), Conflict, Unsupported,
// Exhausted, and Unavailable for a box that does not answer now. A deadline of
// ctx bounds every call. All that a Guest returns is hostile data whose sizes
// and forms were checked.
type Guest interface {
	Processes
	Files
	Contexts
	// Dial connects to a TCP port of the box's loopback interface.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	Metrics(context.Context) (Metrics, error)
}

// Metrics is the box's own view of itself.
type Metrics struct {
	Processes               int // programs alive that were started through the agent, and their descendants
	MemoryUsed, MemoryTotal int64
	DiskUsed, DiskTotal     int64
	FilesUsed, FilesTotal   int64
	AgentResident           int64 // bytes of the agent itself
	CPU                     time.Duration
	Uptime                  time.Duration
}

// Processes starts and follows programs. Their number in the box names them;
// so does a tag, if they were given one.
type Processes interface {
	Start(context.Context, ProcessSpec) (Process, error)
	// Follow sends what a process has written from the given positions on, then
	// what it writes, then its end, and returns after that. An error of fn is
	// returned as it is. When ctx ends the process lives on, and for [ReplayTime]
	// it does not lose a byte of what was not passed to fn: it rather waits.
	// Several may follow one process; the slowest sets its pace.
	Follow(ctx context.Context, p ProcessRef, from Positions, fn func(ProcessEvent) error) error
	// Input writes to the process's standard input, or terminal. The same bytes
	// at the same position twice are written once. It returns the position
	// behind the last byte written, which may be fewer than given.
	Input(ctx context.Context, p ProcessRef, in Input) (next int64, err error)
	// Signal sends to the process, and to the group that it leads if group is true.
	Signal(ctx context.Context, p ProcessRef, signal int, group bool) error
	Resize(ctx context.Context, p ProcessRef, size WindowSize) error
	// Processes lists those alive and those that have ended and are not
	// forgotten, in the order of their start.
	Processes(context.Context) ([]Process, error)
	// Forget drops what is kept of a process that has ended.
	Forget(ctx context.Context, p ProcessRef) error
}

// Tidier is a guest that can drop what is kept of a process without a use of the
// box: one that is paused stays so, and keeps it. It is for who tidies up after an
// answer, when its caller may have paused the box already.
type Tidier interface {
	Tidy(ctx context.Context, p ProcessRef) error
}

// Tidy drops what is kept of a process by [Tidier], or by Forget where a guest has
// no other way.
func Tidy(ctx context.Context, g Guest, p ProcessRef) error {
	if t, ok := g.(Tidier); ok {
		return t.Tidy(ctx, p)
	}
	return g.Forget(ctx, p)
}

// ReplayTime is how long output is kept for a follower that was cut off.
const ReplayTime = 30 * time.Second

// ProcessSpec says what to start. A nil Command.TTY gives pipes.
type ProcessSpec struct {
	Command
	Stdin   bool          // false: standard input reads as empty
	Tag     string        // unique among the box's live processes; may be empty
	Timeout time.Duration // from its start; 0 = none
	Grace   time.Duration // between SIGTERM and SIGKILL at Timeout
	// Output bounds stdout and stderr together, in bytes; the process is ended
	// when it writes more. 0 = none.
	Output int64
	// Keep is how many bytes of each stream's tail stay for who comes late, at
	// most [MaxKeep]; 0 = [DefaultKeep].
	Keep int64
	// Detached says that nobody is about to follow: the oldest output goes when
	// there is more than Keep. Else, for [ReplayTime] after its start, the process
	// waits rather than lose a byte.
	Detached bool
}

// Bounds of ProcessSpec.Keep, in bytes.
const (
	DefaultKeep = 256 << 10
	MaxKeep     = 4 << 20
)

// ProcessRef names a process by number, or by tag if PID is 0.
type ProcessRef struct {
	PID int
	Tag string
}

// Process is what is known of one.
type Process struct {
	PID     int
	Tag     string
	Argv    []string
	Dir     string
	User    User
	TTY     bool
	Started time.Time
	End     *End // nil while it lives
}

// End is what became of a process.
type End struct {
	Cause          Cause // Exited, Signaled, Deadline, OutputLimit, OutOfMemory or Lost
	ExitCode       int   // valid when Cause is Exited
	Signal         int   // valid when Cause is Signaled
	Stdout, Stderr int64 // bytes written in all
	CPU            time.Duration
	MaxResident    int64 // bytes
	Ended          time.Time
}

// Positions are those of the next byte wanted of each stream; -1 is the
// earliest that is kept.
type Positions struct{ Stdout, Stderr int64 }

// ProcessEvent is one piece of a process's story.
type ProcessEvent struct {
	Kind EventKind
	At   int64  // position of Data's first byte in its stream; a gap before it was lost
	Data []byte // of EventStdout and EventStderr; valid until fn returns
	End  *End   // of EventEnd
}

// EventKind says what an event tells.
type EventKind string

// Kinds of events. A terminal's bytes come as stdout.
const (
	EventStdout EventKind = "stdout"
	EventStderr EventKind = "stderr"
	EventEnd    EventKind = "end"  // the last one
	EventBeat   EventKind = "beat" // nothing new; all is well
	EventResult EventKind = "result"
	EventError  EventKind = "error"
)

// Input is a piece of a process's standard input.
type Input struct {
	At   int64 // position of Data's first byte in all input
	Data []byte
	End  bool // nothing follows; a terminal gets its end-of-file character
}

// Files are those of the box. Paths are absolute and any bytes but NUL; the
// box's own kernel resolves them, with no more rights than the box's user root
// has, where there is one. What is not a regular file is never opened.
type Files interface {
	Stat(ctx context.Context, path string, follow bool) (Entry, error)
	// List returns what is below a folder, at most depth levels (1 = its own
	// entries) and most entries; cut reports that there are more.
	List(ctx context.Context, path string, depth, most int) (entries []Entry, cut bool, err error)
	MakeDir(ctx context.Context, path string, o MakeDirOptions) (made bool, err error)
	Move(ctx context.Context, from, to string, replace bool) error
	Remove(ctx context.Context, path string, all bool) error
	// Read returns a file's bytes from offset on, length of them or, if it is
	// negative, to the end. The reader is to be closed.
	Read(ctx context.Context, path string, offset, length int64) (Entry, io.ReadCloser, error)
	// Write replaces a file in one step when all of r was read without error;
	// before that nobody sees anything of it.
	Write(ctx context.Context, path string, o WriteOptions, r io.Reader) (Entry, error)
	// Watch tells of changes below path until ctx ends or fn fails. It calls fn
	// with a Change without a What once the watch stands.
	Watch(ctx context.Context, path string, recursive bool, fn func(Change) error) error
	// Pack writes what lies at path as a tar stream with names relative to it,
	// and fails when that would be more than most bytes.
	Pack(ctx context.Context, path string, most int64, w io.Writer) error
	// Unpack makes what a tar stream holds below path: folders, regular files
	// and links; nothing outside path is touched.
	Unpack(ctx context.Context, path string, user User, r io.Reader) (files, bytes int64, err error)
}

// FileKind is what an entry is.
type FileKind string

// Kinds of files.
const (
	KindFile  FileKind = "file"
	KindDir   FileKind = "dir"
	KindLink  FileKind = "link"
	KindOther FileKind = "other" // pipes, sockets, devices
)

// Entry is a file or folder.
type Entry struct {
	Path       string // as asked for, or below it
	Kind       FileKind
	Size       int64
	Mode       uint32 // permission bits
	UID, GID   uint32 // as the box sees them
	Modified   time.Time
	Link       string            // what a symbolic link says
	Attributes map[string][]byte // user.* extended attributes of a Stat, where the store has them
}

// MakeDirOptions says how a folder is made. A zero Mode is 0755.
type MakeDirOptions struct {
	Mode    uint32
	Parents bool
	User    User // owner; empty = UserOrdinary
}

// WriteOptions says how a file is made. A zero Mode keeps that of a file that
// is replaced, else it is 0644.
type WriteOptions struct {
	Mode       uint32
	Parents    bool // make missing folders
	Exclusive  bool // Conflict if it is there
	User       User // owner of a new file; empty = UserOrdinary
	Attributes map[string][]byte
}

// Change is one change below a watched path.
type Change struct {
	Path string // relative to what is watched
	What ChangeKind
}

// ChangeKind is what a Change tells.
type ChangeKind string

// Kinds of changes. ChangeLost says that the kernel's queue ran over, and that
// the caller has to look for itself.
const (
	ChangeCreate ChangeKind = "create"
	ChangeWrite  ChangeKind = "write"
	ChangeRemove ChangeKind = "remove"
	ChangeRename ChangeKind = "rename"
	ChangeChmod  ChangeKind = "chmod"
	ChangeLost   ChangeKind = "lost"
)

package box

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Service is what REST, MCP and the other interfaces speak: boxes with owners.
//
// Every call names its caller, who was authenticated by whoever calls. What
// belongs to another tenant is NotFound, in the same words as what is not
// there. Calls beyond a tenant's share are Exhausted, with Error.Retry.
type Service interface {
	// Create makes a box and returns when it can be used.
	Create(context.Context, Caller, CreateRequest) (Info, error)
	Inspect(context.Context, Caller, ID) (Info, error)
	// List returns a page of the tenant's boxes in the order of their creation,
	// and the cursor of the next page, empty at the end.
	List(context.Context, Caller, ListRequest) (page []Info, next string, err error)
	// Prolong makes the box live at least ttl from now on. It never shortens.
	Prolong(ctx context.Context, c Caller, id ID, ttl time.Duration) (Info, error)
	// Destroy ends a box and returns when nothing of it is left on the host. A
	// box that was destroyed before is no error.
	Destroy(context.Context, Caller, ID) error
	// Pause makes a box stand still until it is resumed, by Resume or by the next
	// call of its Guest. Calls under way stand still with it. Paused time counts
	// neither for the box's end nor as idle; its share of the tenant's stays taken.
	// A box that is paused is no error.
	Pause(context.Context, Caller, ID) (Info, error)
	// Resume lets a paused box go on; one that runs is no error.
	Resume(context.Context, Caller, ID) (Info, error)
	// Guest returns a box, for calls of the given right. What is done
	// through it counts as use of the box.
	Guest(context.Context, Caller, ID, Scope) (Guest, error)
	// Execute runs one program in a box of its own, which is destroyed after. A
	// non-nil report comes with every answer that tells of a box; the error is
	// what the report repeats.
	Execute(context.Context, Caller, ExecuteRequest) (*Report, error)
	// Whoami says what holds for the caller.
	Whoami(context.Context, Caller) (Allowance, error)
	SnapshotService
	VolumeService
	NetworkService
}

// Caller is who asks.
type Caller struct {
	Tenant    string
	Principal string
	Scopes    []Scope
}

// Scope is a right of a key.
type Scope string

// Scopes. ScopeAdmin includes all others.
const (
	ScopeRead  Scope = "read"  // look at boxes and files
	ScopeWrite Scope = "write" // make and destroy boxes, write files
	ScopeExec  Scope = "exec"  // start programs, run code, dial ports
	ScopeAdmin Scope = "admin"
)

// Scopes lists all scopes.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeWrite, ScopeExec, ScopeAdmin} }

// May refuses a call for which none of the caller's scopes is.
func (c Caller) May(s Scope) error {
	for _, has := range c.Scopes {
		if has == s || has == ScopeAdmin {
			return nil
		}
	}
	return Errorf(Denied, "authorize", "cannot allow this: the key lacks the scope %q", s).
		WithHint("use a key that has it")
}

// CreateRequest asks for a long-lived box.
type CreateRequest struct {
	// Sandbox holds the keys below `sandbox` of a configuration file, as a JSON
	// object; empty for the defaults.
	Sandbox json.RawMessage
	// Snapshot is the reference of what the box is made from; Sandbox is then empty:
	// it is that of the snapshot's box. Empty = nothing.
	Snapshot string
	// Template is the name of one that the service keeps prepared; Sandbox and
	// Snapshot are then empty. Empty = none.
	Template string
	Metadata map[string]string // the caller's own; at most 32 pairs of 256 bytes
	TTL      time.Duration     // 0 = the service's default; the effective one is in Info
	// Idle destroys the box when nobody used it and no program that was started
	// in it runs for so long, or what else OnIdle says. 0 = never.
	Idle time.Duration
	// OnIdle is IdleDestroy if empty. A box that cannot be paused is refused as
	// Unsupported with IdlePause.
	OnIdle IdleAction
	// Key makes the call idempotent: the same key again returns the same box.
	Key string
	// Strict refuses a box of which this host cannot enforce everything.
	Strict bool
}

// IdleAction is what becomes of a box that nobody uses.
type IdleAction string

// Idle actions. A box that was paused is resumed by the next call.
const (
	IdleDestroy IdleAction = "destroy"
	IdlePause   IdleAction = "pause"
)

// Info is what is known of a box.
type Info struct {
	ID         ID
	Tenant     string
	Principal  string
	Phase      Phase
	Reason     Reason // why it was destroyed; empty before
	Detail     string // more about Reason, for a person
	Tier       TierName
	TierReason string
	Image      string
	Weak       []string
	Start      StartKind
	// StartReason says why the start was not a warm one that was asked for, or
	// which snapshot it is from.
	StartReason string
	Policy      Policy // what is in force
	Metadata    map[string]string
	Created     time.Time
	Ends        time.Time // destroyed then, unless prolonged; zero = never; of a paused box, if it is resumed now
	Idle        time.Duration
	OnIdle      IdleAction
	Paused      time.Time // since when it is; zero if it is not
	Destroyed   time.Time // zero while it lives
	Limits      []LimitHit
	Usage       Usage // up to now, or up to its end
}

// ListRequest selects boxes.
type ListRequest struct {
	Destroyed bool // also those that are no more
	Metadata  map[string]string
	Cursor    string // of an earlier page
	Limit     int    // 1 to 1000; 0 = 100
}

// ExecuteRequest is the one-call form of a run. Either Language and Code, or
// Argv.
type ExecuteRequest struct {
	Sandbox  json.RawMessage // as in CreateRequest
	Language string
	Code     string
	Argv     []string
	Args     []string        // of the program, after the code's file
	Input    json.RawMessage // becomes input.json in the working folder
	Files    []File          // relative to the working folder
	Stdin    io.Reader
	Collect  bool // list artifacts and read output.json
	Strict   bool
}

// File is a file that is put into a box before its program starts.
type File struct {
	Path string
	Data []byte
	Exec bool
}

// Allowance is a tenant's share and what is used of it.
type Allowance struct {
	Tenant    string
	Principal string
	Scopes    []Scope
	Boxes     Share // boxes alive, one-call runs among them
	MilliCPU  Share
	Memory    Share // bytes
}

// Share is a bound and what is used of it; 0 = no bound.
type Share struct{ Used, Most int64 }

package box

import "encoding/json"

// Report is the JSON document that one run answers with: `sunaba run -o json`
// and the one-call forms of the services. Its schema is docs/result.schema.json.
// Every field is always present unless marked omitempty.
type Report struct {
	ID        ID         `json:"id"`
	Cause     Cause      `json:"cause,omitempty"` // absent only when Error is set before the program started
	ExitCode  *int       `json:"exit_code"`       // null unless cause is exited
	Signal    *int       `json:"signal"`          // null unless cause is signaled
	LimitsHit []LimitHit `json:"limits_hit"`
	// Stdout and Stderr hold the raw bytes when they are valid UTF-8 and are
	// null otherwise; then the Base64 form holds them. The Clean form shows
	// control, escape, bidi and invisible characters as visible text: it is
	// what a model should read. Bytes counts what the program wrote, kept or
	// not.
	Stdout          *string `json:"stdout"`
	StdoutBase64    *string `json:"stdout_base64,omitempty"`
	StdoutClean     string  `json:"stdout_clean"`
	StdoutBytes     int64   `json:"stdout_bytes"`
	StdoutTruncated bool    `json:"stdout_truncated"`
	Stderr          *string `json:"stderr"`
	StderrBase64    *string `json:"stderr_base64,omitempty"`
	StderrClean     string  `json:"stderr_clean"`
	StderrBytes     int64   `json:"stderr_bytes"`
	StderrTruncated bool    `json:"stderr_truncated"`
	Truncated       bool    `json:"truncated"` // either stream was
	// Output is the parsed output.json that the program left in its working
	// directory, null if it left none. OutputError says why one that is there
	// could not be used.
	Output      json.RawMessage `json:"output"`
	OutputError string          `json:"output_error,omitempty"`
	// Artifacts are the files that the program left there. ArtifactsError says
	// why they are not all.
	Artifacts      []Artifact `json:"artifacts"`
	ArtifactsError string     `json:"artifacts_error,omitempty"`
	Usage          UsageJSON  `json:"usage"`
	Tier           TierName   `json:"tier"`
	TierReason     string     `json:"tier_reason"`
	Image          string     `json:"image"` // name, and digest where the image has one: base@sha256:...
	Start          StartKind  `json:"start"`
	Policy         Policy     `json:"policy"`
	Network        Traffic    `json:"network"` // what became of it; all zero without one
	Weak           []string   `json:"weak"`
	Error          *ErrorJSON `json:"error,omitempty"` // set only when Sunaba failed
}

// StartKind says how the box came to be.
type StartKind string

// Start kinds.
const (
	StartCold     StartKind = "cold"
	StartWarm     StartKind = "warm"
	StartRestored StartKind = "restored"
)

// Artifact is a file that the program left in its working directory.
type Artifact struct {
	Path       string `json:"path"`                  // relative to the working directory; control characters are escaped in text views only
	PathBase64 string `json:"path_base64,omitempty"` // its bytes, if they are not UTF-8: in path U+FFFD stands for them
	Size       int64  `json:"size"`
	SHA256     string `json:"sha256"`
	Saved      string `json:"saved,omitempty"` // where --out put it
	Error      string `json:"error,omitempty"` // why it was not saved
}

// UsageJSON is Usage in plain numbers.
type UsageJSON struct {
	CPUSeconds      float64 `json:"cpu_seconds"`
	WallSeconds     float64 `json:"wall_seconds"`
	MemoryPeakBytes int64   `json:"memory_peak_bytes"`
	BytesWritten    int64   `json:"bytes_written"`
}

// Policy is what was in force, after every decision.
type Policy struct {
	Trust   Trust      `json:"trust"`
	Limits  LimitsJSON `json:"limits"`
	Network Net        `json:"network"`
	Mounts  []Mount    `json:"mounts"`
	Volumes []Volume   `json:"volumes"`
	NoMount []string   `json:"no_mount"`
	Workdir string     `json:"writable_dir"`
	User    User       `json:"user"`
}

// LimitsJSON is Limits under the configuration file's names, in plain numbers.
type LimitsJSON struct {
	CPU         float64 `json:"cpu"`
	MemoryBytes int64   `json:"memory_bytes"`
	TimeoutSec  float64 `json:"timeout_sec"`
	IdleSec     float64 `json:"idle_sec"`
	Processes   int64   `json:"max_processes"`
	OpenFiles   int64   `json:"max_open_files"`
	DiskBytes   int64   `json:"disk_bytes"`
	Files       int64   `json:"max_files"`
	OutputBytes int64   `json:"max_output_bytes"`
	OnLimit     OnLimit `json:"on_limit"`
}

// ErrorJSON is an Error for a document.
type ErrorJSON struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

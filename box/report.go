package box

import "encoding/json"

// Report is the JSON document that one run answers with: `sunaba run -o json`
// and the one-call forms of the services. Its schema is docs/result.schema.json.
// Every field is always present unless marked omitempty.
type Report struct {
	ID         ID          `json:"id"`
	Cause      Cause       `json:"cause,omitempty"` // absent only when Error is set before the program started
	ExitCode   *int        `json:"exit_code"`       // null unless cause is exited
	Signal     *int        `json:"signal"`          // null unless cause is signaled
	LimitsHit  []LimitHit  `json:"limits_hit"`
	Stdout     Text        `json:"stdout"`
	Stderr     Text        `json:"stderr"`
	Output     *JSONOutput `json:"output,omitempty"` // set if the program wrote output.json
	Artifacts  []Artifact  `json:"artifacts"`
	Usage      UsageJSON   `json:"usage"`
	Tier       TierName    `json:"tier"`
	TierReason string      `json:"tier_reason"`
	Image      string      `json:"image"` // name, and digest where the image has one: base@sha256:...
	Start      StartKind   `json:"start"`
	Policy     Policy      `json:"policy"`
	Weak       []string    `json:"weak"`
	Error      *ErrorJSON  `json:"error,omitempty"` // set only when Sunaba failed
}

// StartKind says how the box came to be.
type StartKind string

// Start kinds.
const (
	StartCold     StartKind = "cold"
	StartWarm     StartKind = "warm"
	StartRestored StartKind = "restored"
)

// Text is one output stream. Exactly one of Text and Base64 is set.
type Text struct {
	Text      *string `json:"text,omitempty"`   // the raw bytes, when they are valid UTF-8
	Base64    *string `json:"base64,omitempty"` // the raw bytes otherwise
	Clean     string  `json:"clean"`            // control, escape, bidi and invisible characters shown: what a model should read
	Bytes     int64   `json:"bytes"`            // what the program wrote, kept or not
	Truncated bool    `json:"truncated"`
}

// JSONOutput is the parsed output.json, or why there is none.
type JSONOutput struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Artifact is a file that the program left in its working directory.
type Artifact struct {
	Path   string `json:"path"` // relative to the working directory; control characters are escaped in text views only
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Saved  string `json:"saved,omitempty"` // where --out put it
	Error  string `json:"error,omitempty"` // why it was not saved
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

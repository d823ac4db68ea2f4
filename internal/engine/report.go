package engine

import (
	"encoding/base64"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/policy"
	"github.com/sunaba-dev/sunaba/internal/stream"
)

// Refused is the report of a request that err kept from coming to a box. It has
// every field of any other report.
func Refused(req Request, err error) *box.Report {
	r := run{rep: newReport(req)}
	r.rep.Error = errorJSON(err)
	r.fill()
	return r.rep
}

// newReport has every list in place, so that none is ever null.
func newReport(req Request) *box.Report {
	p := req.Policy
	return &box.Report{
		LimitsHit: []box.LimitHit{},
		Artifacts: []box.Artifact{},
		Weak:      []string{},
		Start:     box.StartCold,
		Network:   box.Traffic{Denied: []box.Denial{}},
		Image:     string(p.Spec.Image),
		Policy:    policy.InForce(p.Spec, p.Trust, req.User),
	}
}

// counted adds the verdict of the output counter. It is ours: bytes may be
// counted after the tier has seen the program's own end, or while another limit
// was ending it.
func (r *run) counted(res box.Result) box.Result {
	known := slices.ContainsFunc(res.Limits, func(h box.LimitHit) bool { return h.Limit == outputLimit })
	if known || !r.budget.Exceeded() {
		return res
	}
	ends := res.Cause == box.Exited || res.Cause == box.Signaled
	if ends {
		res.Cause = box.OutputLimit
	}
	res.Limits = append(res.Limits, box.LimitHit{Limit: outputLimit, Source: outputCounter, Ended: ends})
	return res
}

func (r *run) result(res box.Result) {
	r.rep.Cause = res.Cause
	switch res.Cause {
	case box.Exited:
		r.rep.ExitCode = &res.ExitCode
	case box.Signaled:
		r.rep.Signal = &res.Signal
	}
	r.rep.LimitsHit = append(r.rep.LimitsHit, res.Limits...)
	r.rep.Usage = box.UsageJSON{
		CPUSeconds:      res.Usage.CPU.Seconds(),
		WallSeconds:     res.Usage.Wall.Seconds(),
		MemoryPeakBytes: res.Usage.MemoryPeak,
		BytesWritten:    res.Usage.Written,
	}
}

// fill puts the captured output into the report.
func (r *run) fill() {
	rep := r.rep
	rep.Stdout, rep.StdoutBase64, rep.StdoutClean, rep.StdoutBytes, rep.StdoutTruncated = r.out.text()
	rep.Stderr, rep.StderrBase64, rep.StderrClean, rep.StderrBytes, rep.StderrTruncated = r.err.text()
	rep.Truncated = rep.StdoutTruncated || rep.StderrTruncated
}

func (c captured) text() (raw, b64 *string, clean string, total int64, truncated bool) {
	var kept []byte
	if c.writer != nil {
		total = c.writer.Offered()
	}
	if c.capture != nil {
		kept = c.capture.Bytes()
	}
	truncated = total > int64(len(kept)) && c.capture != nil
	if truncated {
		// A cut through the last character would make the rest look binary.
		kept = stream.WholeRunes(kept)
	}
	if utf8.Valid(kept) {
		s := string(kept)
		raw = &s
		if plain(s) {
			return raw, nil, s, total, truncated
		}
	} else {
		s := base64.StdEncoding.EncodeToString(kept)
		b64 = &s
	}
	return raw, b64, stream.Clean(kept), total, truncated
}

// plain reports whether s is ASCII text that cleaning leaves as it is. Most
// output is, and then both forms can be one string.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\n' && c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

func errorJSON(err error) *box.ErrorJSON {
	j := &box.ErrorJSON{Kind: box.KindOf(err), Message: err.Error()}
	var e *box.Error
	if errors.As(err, &e) {
		j.Hint = e.Hint
	}
	return j
}

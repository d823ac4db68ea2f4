package guest

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what an agent may say, beside that of a message.
const (
	maxPath  = 4096    // bytes: PATH_MAX of path_resolution(7)
	maxBelow = 20_000  // bytes of a path that was gone step by step: 64 names of 255, and where it began
	maxPID   = 1 << 22 // PID_MAX_LIMIT of proc_sys_kernel(5)
	maxTag   = 256     // bytes
	maxList  = 10_000  // entries of one answer
	maxTold  = 4 << 20 // bytes of paths and links in a list of files
	maxShort = 1 << 10 // bytes of a name, version or user
)

// checkPath wants an absolute path as the kernel takes it.
func checkPath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return lie("a path that is not absolute")
	case len(p) > maxPath:
		return lie("a path of %d bytes", len(p))
	case strings.Contains(p, "\x00"):
		return lie("a path with a NUL")
	}
	return nil
}

// checkBelow wants a path that cannot leave the folder that it is relative to,
// and says how many names it has.
func checkBelow(rel string) (names int, err error) {
	if len(rel) > maxBelow {
		return 0, lie("a path of %d bytes", len(rel))
	}
	if strings.Contains(rel, "\x00") {
		return 0, lie("a path with a NUL")
	}
	for name := range strings.SplitSeq(rel, "/") {
		if name == "" || name == "." || name == ".." {
			return 0, lie("a path that is not below what was asked for")
		}
		names++
	}
	return names, nil
}

func checkPID(pid uint32) (int, error) {
	if pid == 0 || pid > maxPID {
		return 0, lie("process %d", pid)
	}
	return int(pid), nil
}

// count is a number that must fit.
func count(n uint64, what string) (int64, error) {
	if n > math.MaxInt64 {
		return 0, lie("%s of %d", what, n)
	}
	return int64(n), nil
}

// checkText wants text of at most most bytes. Protobuf has seen to UTF-8.
func checkText(s string, most int, what string) error {
	switch {
	case len(s) > most:
		return lie("%s of %d bytes", what, len(s))
	case strings.Contains(s, "\x00"):
		return lie("%s with a NUL", what)
	}
	return nil
}

// cut shortens text to at most most bytes, between characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// past is a time that a box tells of, between 1970 and now: its clock is its
// own, and what has happened is not in the future.
func past(ms int64) time.Time {
	t, now := time.UnixMilli(max(ms, 0)), time.Now()
	if ms > now.UnixMilli() {
		t = now
	}
	return t.UTC()
}

// span is a time span in some unit, at most a hundred years.
func span(n uint64, unit time.Duration) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(min(n, uint64(most/unit))) * unit
}

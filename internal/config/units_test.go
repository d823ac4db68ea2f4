package config

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sunaba-dev/sunaba/box"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "0k": 0, "1": 1, "1b": 1, "1B": 1, "1k": 1 << 10, "1K": 1 << 10, "1ki": 1 << 10, "1KB": 1 << 10, "1KiB": 1 << 10,
		"512m": 512 << 20, "512Mi": 512 << 20, "512mb": 512 << 20, "3G": 3 << 30, "3gib": 3 << 30, "2t": 2 << 40, "2TB": 2 << 40,
		"9223372036854775807": math.MaxInt64, "8388607t": 8388607 << 40,
	} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", s, got, err, want)
		}
	}
	for s, says := range map[string]string{
		"": "not a plain decimal", "m": "not a plain decimal", "512q": `unknown unit "q"`, "1 m": `unknown unit " m"`, " 1m": "not a size", "1m ": "unknown unit",
		"-1": "negative", "-1m": "negative", "+1": "not a size", "1.5g": "not a whole number", ".5": "not a size", "1e3": "unknown unit", "0x10": "unknown unit",
		"1_000": "unknown unit", "010": "leading zero", "00": "leading zero", "1p": "unknown unit", "1mm": "unknown unit", "１m": "not a size",
		"9223372036854775808": "too large", "8388608t": "too large to count in bytes", "99999999999999999999999999": "too large", "nan": "not a size", "Inf": "not a size",
		strings.Repeat("9", 10000): "too large",
	} {
		got, err := ParseSize(s)
		if err == nil || got != 0 || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "cannot read size ") || box.KindOf(err) != box.Invalid {
			t.Errorf("%.30q: got %d, %v; want %q", s, got, err, says)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.30q: the message has %d bytes", s, len(err.Error()))
		}
	}
}

func TestParseCPU(t *testing.T) {
	for s, want := range map[string]int64{"1": 1000, "1.0": 1000, "0.5": 500, "2": 2000, "1500m": 1500, "0m": 0, "0.001": 1, "0.0100000": 10, "0": 0} {
		if got, err := ParseCPU(s); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "m", ".", ".5", "1.", "-1", "+1", "1.5m", "0.0001", "1e0", "NaN", "inf", "1k", "1 ", "1..2", "1.2.3", "9223372036854775807", "01"} {
		if got, err := ParseCPU(s); err == nil {
			t.Errorf("%q: got %d", s, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"60": time.Minute, "0.5": 500 * time.Millisecond, "0": 0, "60s": time.Minute, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "500ms": 500 * time.Millisecond,
		"0.000000001": 1, "9223372036.854775807": math.MaxInt64,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "s", "-1", "-1s", "+1s", "1d", "1 s", "1e3", "nan", "Inf", "infs", "9223372036.854775808", "3000000h", "0.0000000001", "1:30", ".5s", "01", "1s-2s"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
}

func TestFormatsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "n") &^ (1<<rapid.IntRange(0, 50).Draw(t, "low bits") - 1)
		if got, err := ParseSize(formatSize(n)); err != nil || got != n {
			t.Fatalf("size %s: %d, %v", formatSize(n), got, err)
		}
		if got, err := ParseCPU(formatMilli(n)); err != nil || got != n {
			t.Fatalf("cpu %s: %d, %v", formatMilli(n), got, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "512m", "1GiB", "-1", "9223372036854775807", "8388608t", "1.5g", "", "k", "１k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if n != 0 || box.KindOf(err) != box.Invalid || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Fatalf("%d, %q", n, err)
			}
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
		// Without a unit the standard library must agree.
		if plain, err := strconv.ParseInt(s, 10, 64); err == nil && plain != n {
			t.Fatalf("%q is %d, not %d", s, n, plain)
		}
	})
}

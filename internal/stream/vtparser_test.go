package stream

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// activeSequences reads out as a terminal does, after the state machine of
// Paul Williams (vt100.net/emu/dec_ansi_parser), and returns everything that
// would make a terminal act: control characters by their number, sequences
// without their parameters' values, such as "CSI ?h 25". It shares nothing with
// the filter under test. An error means that the output leaves a terminal in
// the middle of something or is no UTF-8.
func activeSequences(out string) ([]string, error) {
	if !utf8.ValidString(out) {
		return nil, fmt.Errorf("not UTF-8")
	}
	const (
		ground = iota
		esc
		escIntermediate
		csi
		text // OSC, DCS, APC, PM, SOS
	)
	var active []string
	var between, params strings.Builder // intermediates and private markers; numbers
	state := ground
	act := func(format string, args ...any) {
		active = append(active, fmt.Sprintf(format, args...))
	}
	start := func(s int) {
		state = s
		between.Reset()
		params.Reset()
	}
	for _, r := range out {
		if r >= 0x80 && r <= 0x9f { // C1: an escape sequence in one character
			act("C1 %x", r)
			start(ground)
			continue
		}
		if r == 0x1b {
			if state != ground {
				act("ESC in a sequence")
			}
			start(esc)
			continue
		}
		if r < 0x20 || r == 0x7f { // obeyed even in the middle of a sequence
			if state != ground {
				act("control in a sequence")
			}
			act("%02x", r)
			continue
		}
		switch state {
		case esc:
			switch {
			case r == '[':
				start(csi)
			case strings.ContainsRune("]P_^X", r):
				act("string ESC %c", r)
				start(text)
			case r >= 0x20 && r <= 0x2f:
				between.WriteRune(r)
				state = escIntermediate
			default:
				act("ESC %c", r)
				start(ground)
			}
		case escIntermediate:
			if r >= 0x20 && r <= 0x2f {
				between.WriteRune(r)
				break
			}
			act("ESC %s%c", between.String(), r)
			start(ground)
		case csi:
			switch {
			case r >= '0' && r <= ';':
				params.WriteRune(r)
			case r >= 0x20 && r <= 0x3f:
				between.WriteRune(r)
			default:
				act("CSI %s%c %s", between.String(), r, params.String())
				start(ground)
			}
		}
	}
	if state != ground {
		return active, fmt.Errorf("output ends in the middle of a sequence")
	}
	return active, nil
}

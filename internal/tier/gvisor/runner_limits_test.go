package gvisor

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestEachLimitIsToldOnceAndBeforeTellReturns(t *testing.T) {
	for range 200 {
		var l limitReader
		var told atomic.Int32
		w, err := l.start(func(limitKind) { told.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := w.Write([]byte{byte(limitDisk)}); err != nil {
				t.Fatal(err)
			}
			l.tell()
			if n := told.Load(); n != int32(i+1) {
				t.Fatalf("%d of %d were told", n, i+1)
			}
		}
		w.Close()
	}
}

func TestAPanicIsNoLimitAndItsBeginningIsKept(t *testing.T) {
	var l limitReader
	var told []limitKind
	w, err := l.start(func(k limitKind) { told = append(told, k) })
	if err != nil {
		t.Fatal(err)
	}
	if l.lastWords() != "" {
		t.Error("words before any")
	}
	long := "panic: paddle of a food\n\tgoroutine 1\n" + strings.Repeat("x", 9999)
	if _, err := w.WriteString("\x03" + long + "\x05"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got := l.lastWords(); got != ": "+long[:panicBytes] {
		t.Errorf("words %q", got)
	}
	if !slices.Equal(told, []limitKind{limitDisk, limitMemory}) {
		t.Errorf("told %v", told)
	}
}

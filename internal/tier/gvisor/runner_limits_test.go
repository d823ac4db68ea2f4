package gvisor

import (
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

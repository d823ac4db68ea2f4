package process

import (
	"os"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/agent/wire"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// A cell of an ordinary user's box is the only one to say what the store holds. On a
// host with much else to do it says so late.
func TestALateCellsStoreIsInTheAccount(t *testing.T) {
	dir := t.TempDir()
	f, err := host.ListenAt(dir, "link")
	if err != nil {
		t.Fatal(err)
	}
	link, err := host.DialAt(dir, "link")
	if err != nil {
		t.Fatal(err)
	}
	cell, err := wire.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		cell.Serve(func(wire.Request, []*os.File) (any, error) {
			time.Sleep(lookWait + lookWait/2)
			return wire.Space{Bytes: 8 << 20, Files: 100, FreeFiles: 90}, nil
		})
	}()
	b := &pbox{}
	b.Conn = wire.NewConn(link)
	t.Cleanup(func() { b.Conn.Close(); cell.End(); <-over })
	b.Spec.Limits = box.Limits{Disk: 8 << 20}
	b.cell.Fresh = wire.Space{Bytes: 8 << 20, FreeBytes: 8 << 20}
	if _, ok := b.space(lookWait); ok {
		t.Error("one look of many waits for it")
	}
	if !(adapter{b}).Full() {
		t.Error("the store is full, and the account does not say so")
	}
	if w := (adapter{b}).Written(); w != 8<<20 {
		t.Errorf("%d bytes were written, says the account", w)
	}
}

package wire

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/internal/host"
)

func TestAFarEndThatStandsStillHoldsNobody(t *testing.T) {
	link, theirs, err := host.LinkPair()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(link)
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		for range 2000 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			err := c.Call(ctx, "account", struct{}{}, nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a call waits for ever")
	}
	// When it goes on, so do we.
	far, err := host.NewLink(theirs)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(far)
	go s.Serve(func(Request, []*os.File) (any, error) { return struct{}{}, nil })
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if err = c.Call(t.Context(), "account", struct{}{}, nil); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

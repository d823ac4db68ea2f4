package stream

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := While(ctx, strings.NewReader("abc"))
	b := make([]byte, 1)
	if n, err := r.Read(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	cancel()
	if n, err := r.Read(b); n != 0 || !errors.Is(err, context.Canceled) {
		t.Error(n, err)
	}
	if rest, err := io.ReadAll(While(t.Context(), strings.NewReader("abc"))); string(rest) != "abc" || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

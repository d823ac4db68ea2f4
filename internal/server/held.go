package server

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Bounds of the documents that are arriving at once, in bytes. Each is read into
// memory, and understanding it takes about three times its size.
const (
	heldTenant = 128 << 20
	heldAll    = 512 << 20
	heldMost   = 16 << 20 // of one; what is longer is refused by whoever reads it
	heldUnsaid = 8 << 20  // of one that does not say how long it is
)

// held counts what is arriving. Without that, a client that begins many bodies
// and ends none takes the memory that everybody's boxes are watched with.
type held struct {
	mu  sync.Mutex
	of  map[string]int64 // by tenant
	all int64
}

// take counts the body of r, if it is a document, until that has been read or
// what is returned is called.
func (h *held) take(tenant string, r *http.Request) (done func(), err error) {
	n := min(r.ContentLength, heldMost)
	if n < 0 {
		n = heldUnsaid
	}
	if r.Method != http.MethodPost || n == 0 { // what comes by PUT is passed on piece by piece
		return func() {}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[tenant]+n > heldTenant || h.all+n > heldAll {
		e := box.Errorf(box.Exhausted, "read request", "cannot take a request of this size now: too many are arriving")
		e.Retry = time.Second
		return nil, e.WithHint("send fewer at once, or files by PUT")
	}
	h.add(tenant, n)
	done = sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.add(tenant, -n)
	})
	r.Body = &heldBody{r.Body, done}
	return done, nil
}

func (h *held) add(tenant string, n int64) {
	h.all += n
	if h.of[tenant] += n; h.of[tenant] == 0 {
		delete(h.of, tenant)
	}
}

type heldBody struct {
	io.ReadCloser
	done func()
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.done()
	}
	return n, err
}

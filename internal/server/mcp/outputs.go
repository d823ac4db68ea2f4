package mcp

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Bounds of the outputs that are kept by default.
const (
	OutputBytes = 64 << 20
	OutputTime  = time.Hour
)

// Outputs keeps what was too long for an answer. Implementations are safe for
// concurrent use.
type Outputs interface {
	// Put keeps text for a tenant and returns its name, or "" if it is not kept.
	// If of is a box's ID, the text goes with the box.
	Put(tenant string, of box.ID, text string) (name string)
	Get(tenant, name string) (text string, ok bool)
	// Forget drops what was kept of a box.
	Forget(tenant string, of box.ID)
}

// NewOutputs returns Outputs in memory, which drop what is older than age, and
// the oldest when all together would be more than most bytes.
func NewOutputs(most int64, age time.Duration, now func() time.Time) Outputs {
	return &outputs{most: most, age: age, now: now, kept: map[string]*keptText{}}
}

type outputs struct {
	most int64
	age  time.Duration
	now  func() time.Time

	mu    sync.Mutex
	kept  map[string]*keptText
	order []string // of Put
	bytes int64
}

type keptText struct {
	tenant string
	of     box.ID
	text   string
	since  time.Time
}

// Put implements Outputs.
func (o *outputs) Put(tenant string, of box.ID, text string) string {
	if int64(len(text)) > o.most {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	name := rand.Text()
	o.kept[name] = &keptText{tenant, of, text, o.now()}
	o.order = append(o.order, name)
	o.bytes += int64(len(text))
	o.sweep()
	return name
}

// Get implements Outputs.
func (o *outputs) Get(tenant, name string) (string, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep()
	if e := o.kept[name]; e != nil && e.tenant == tenant {
		return e.text, true
	}
	return "", false
}

// Forget implements Outputs.
func (o *outputs) Forget(tenant string, of box.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, e := range o.kept {
		if e.tenant == tenant && e.of == of {
			o.drop(name)
		}
	}
}

func (o *outputs) sweep() {
	for len(o.order) > 0 {
		name := o.order[0]
		if e := o.kept[name]; e != nil {
			if o.bytes <= o.most && o.now().Sub(e.since) < o.age {
				return
			}
			o.drop(name)
		}
		o.order = o.order[1:]
	}
}

func (o *outputs) drop(name string) {
	o.bytes -= int64(len(o.kept[name].text))
	delete(o.kept, name)
}

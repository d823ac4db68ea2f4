package cell

import (
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/internal/egress/ledger"
	"github.com/sunaba-dev/sunaba/internal/egress/rules"
	"github.com/sunaba-dev/sunaba/internal/hostname"
)

// Every box may begin this many connections at once, and a second, whatever its
// policy says: what each costs here is bounded.
const (
	acceptBurst = 512
	acceptRate  = 256
)

// maxNames is how many names of a box are remembered, below all wildcards together:
// a policy may have thousands of wildcards, and each has a number of its own.
const maxNames = 1 << 16

// budgets count what a box has used up. They outlive its policies, and the ledger's
// part of them this process.
type budgets struct {
	ledger *ledger.Ledger

	mu     sync.Mutex
	accept bucket
	names  map[string]map[hostname.Name]struct{} // by wildcard
}

// bucket is a token bucket, which begins full.
type bucket struct {
	used float64
	at   time.Time
}

// take takes one of burst tokens, of which perSecond come back.
func (b *bucket) take(now time.Time, perSecond, burst float64) bool {
	if gone := now.Sub(b.at).Seconds(); gone > 0 {
		b.used = max(0, b.used-gone*perSecond)
		b.at = now
	}
	if b.used+1 > burst {
		return false
	}
	b.used++
	return true
}

// begin reports whether one more connection may begin now.
func (b *budgets) begin(r rules.Rate) bool {
	b.mu.Lock()
	ok := b.accept.take(time.Now(), acceptRate, acceptBurst)
	b.mu.Unlock()
	return ok && b.rate("", r)
}

// rate reports whether an entry or rule may be used once more now; "" is the
// policy's own rate of connections.
func (b *budgets) rate(rule string, r rules.Rate) bool {
	return b.ledger.Take(rule, r.Count, r.Per)
}

// name notes that a name was asked for, and reports whether its wildcard had
// room for it. A name that an entry names in full needs none.
func (b *budgets) name(p *rules.Policy, n hostname.Name) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var wild []string
	for i := range p.Hosts {
		h := &p.Hosts[i]
		if h.Deny || !h.Host.Match(n) {
			continue
		}
		if !h.Host.Wild() {
			return true
		}
		wild = append(wild, h.Host.String())
	}
	for _, w := range wild {
		if _, ok := b.names[w][n]; ok {
			return true
		}
		if len(b.names[w]) >= p.Limits.Names || b.remembered() >= maxNames {
			continue
		}
		if b.names == nil {
			b.names = map[string]map[hostname.Name]struct{}{}
		}
		if b.names[w] == nil {
			b.names[w] = map[hostname.Name]struct{}{}
		}
		b.names[w][n] = struct{}{}
		return true
	}
	return false
}

// remembered is how many names there are below all wildcards.
func (b *budgets) remembered() int {
	n := 0
	for _, names := range b.names {
		n += len(names)
	}
	return n
}

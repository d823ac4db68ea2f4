package servertest

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Guest is a box in memory.
type Guest struct {
	service *Service
	key     string
	gone    chan struct{} // closed when the box is destroyed

	mu       sync.Mutex
	info     box.Info
	programs []*program
	files    map[string]*node
	watches  map[*watch]struct{}
	contexts []*interpreter
	lastPID  int
}

func newGuest(s *Service, key string, info box.Info) *Guest {
	now := time.Now()
	return &Guest{
		service: s, key: key, info: info, gone: make(chan struct{}), lastPID: 10, watches: map[*watch]struct{}{},
		files: map[string]*node{"/": {kind: box.KindDir, mode: 0o755, at: now}, "/workspace": {kind: box.KindDir, mode: 0o755, at: now}},
	}
}

func (g *Guest) describe() box.Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.info
}

func (g *Guest) destroy() {
	g.mu.Lock()
	if g.info.Phase == box.PhaseDestroyed {
		g.mu.Unlock()
		return
	}
	g.info.Phase, g.info.Reason, g.info.Destroyed = box.PhaseDestroyed, box.ReasonAsked, time.Now().UTC()
	close(g.gone)
	programs := g.programs
	g.mu.Unlock()
	for _, p := range programs {
		p.finish(box.End{Cause: box.Lost})
	}
}

// in bounds a call by the box's life.
func (g *Guest) in(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := g.service.refused(); err != nil {
		return nil, nil, err
	}
	select {
	case <-g.gone:
		return nil, nil, box.Errorf(box.NotFound, "find box", "cannot find this box")
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-g.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel, nil
}

// Live counts the programs that have not ended.
func (s *Service) Live() int {
	s.mu.Lock()
	boxes := s.boxes
	s.mu.Unlock()
	n := 0
	for _, g := range boxes {
		g.mu.Lock()
		programs := g.programs
		g.mu.Unlock()
		for _, p := range programs {
			if p.describe().End == nil {
				n++
			}
		}
	}
	return n
}

// Metrics implements box.Guest.
func (g *Guest) Metrics(ctx context.Context) (box.Metrics, error) {
	_, cancel, err := g.in(ctx)
	if err != nil {
		return box.Metrics{}, err
	}
	defer cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	return box.Metrics{Processes: len(g.programs), MemoryTotal: 1 << 20, Uptime: time.Second}, nil
}

// Dial implements box.Guest: port 7 echoes, others refuse.
func (g *Guest) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	_, cancel, err := g.in(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if port != 7 {
		return nil, box.Errorf(box.Unavailable, "dial", "cannot connect to port %d: nobody listens", port)
	}
	here, there := net.Pipe()
	go func() {
		io.Copy(there, there)
		there.Close()
	}()
	return here, nil
}

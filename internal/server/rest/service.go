package rest

import (
	"context"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// guest returns a box for calls of a right. Whose box it is, and whether the
// key has the right, is judged below.
func (a *API) guest(ctx context.Context, id string, s box.Scope) (box.Guest, error) {
	return a.Service.Guest(ctx, server.CallerOf(ctx), box.ID(id), s)
}

// call bounds one call of a box.
func (a *API) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.Call)
}

// Me says what holds for a key.
type Me struct {
	Tenant      string      `json:"tenant"`
	Principal   string      `json:"principal"`
	Scopes      []box.Scope `json:"scopes"`
	Boxes       Share       `json:"boxes" doc:"Boxes alive, one-call runs among them."`
	CPU         Share       `json:"milli_cpu" doc:"Thousandths of a processor."`
	MemoryBytes Share       `json:"memory_bytes"`
}

// Share is a bound and what is used of it.
type Share struct {
	Used int64 `json:"used"`
	Most int64 `json:"most" doc:"0 is no bound."`
}

func (a *API) whoami(ctx context.Context, _ *struct{}) (Me, error) {
	w, err := a.Service.Whoami(ctx, server.CallerOf(ctx))
	if err != nil {
		return Me{}, err
	}
	return Me{
		Tenant: w.Tenant, Principal: w.Principal, Scopes: list(w.Scopes),
		Boxes: Share(w.Boxes), CPU: Share(w.MilliCPU), MemoryBytes: Share(w.Memory),
	}, nil
}

// Metrics is a box's own view of itself.
type Metrics struct {
	Processes        int     `json:"processes" doc:"Programs alive that were started through the API, and their descendants."`
	MemoryUsedBytes  int64   `json:"memory_used_bytes"`
	MemoryTotalBytes int64   `json:"memory_total_bytes"`
	DiskUsedBytes    int64   `json:"disk_used_bytes"`
	DiskTotalBytes   int64   `json:"disk_total_bytes"`
	FilesUsed        int64   `json:"files_used"`
	FilesTotal       int64   `json:"files_total"`
	AgentBytes       int64   `json:"agent_resident_bytes" doc:"Memory of the box's own agent."`
	CPUSeconds       float64 `json:"cpu_seconds"`
	UptimeSeconds    float64 `json:"uptime_seconds"`
}

func (a *API) metrics(ctx context.Context, in *BoxPath) (Metrics, error) {
	g, err := a.guest(ctx, in.ID, box.ScopeRead)
	if err != nil {
		return Metrics{}, err
	}
	ctx, cancel := a.call(ctx)
	defer cancel()
	m, err := g.Metrics(ctx)
	if err != nil {
		return Metrics{}, err
	}
	return Metrics{
		Processes: m.Processes, MemoryUsedBytes: m.MemoryUsed, MemoryTotalBytes: m.MemoryTotal,
		DiskUsedBytes: m.DiskUsed, DiskTotalBytes: m.DiskTotal, FilesUsed: m.FilesUsed, FilesTotal: m.FilesTotal,
		AgentBytes: m.AgentResident, CPUSeconds: m.CPU.Seconds(), UptimeSeconds: m.Uptime.Seconds(),
	}, nil
}

// pairsOf reads name=value.
func pairsOf(what string, l []string) (map[string]string, error) {
	if len(l) == 0 {
		return nil, nil
	}
	pairs := map[string]string{}
	for _, s := range l {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, box.Errorf(box.Invalid, "read query", "cannot use %s %q: it is not of the form name=value", what, s)
		}
		pairs[name] = value
	}
	return pairs, nil
}

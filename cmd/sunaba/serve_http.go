package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/pool"
	"github.com/sunaba-dev/sunaba/internal/server"
	"github.com/sunaba-dev/sunaba/internal/server/mcp"
	"github.com/sunaba-dev/sunaba/internal/server/rest"
)

// handler puts the interfaces together, all of them over the same service.
func (s *service) handler(f *serveFlags, state string, loopback bool, log *slog.Logger) (http.Handler, error) {
	key, err := signKey(filepath.Join(state, "daemon"))
	if err != nil {
		return nil, err
	}
	version, _ := versions()
	api := rest.New(rest.Config{Service: s, Keys: s, SignKey: key, Version: version})
	tools := mcp.New(mcp.Config{Service: s, Version: version, Logger: log})
	mounts := append(api.Mounts(), server.Mount{Pattern: "/mcp", Handler: tools.Handler()})
	return server.New(server.Config{
		Auth:        s.Authenticate,
		Mounts:      mounts,
		Loopback:    loopback,
		Hosts:       f.hosts,
		Ready:       s.store.Ready,
		Gauges:      s.gauges,
		OpenMetrics: f.openMetrics,
		Log:         log,
	}), nil
}

func (s *service) gauges() []server.Gauge {
	st, net := s.Stats(), s.keeper.State()
	out := []server.Gauge{
		{Name: "sunaba_waiting", Help: "Requests that wait for a box.", Value: float64(st.Waiting)},
		{Name: "sunaba_boxes_absent", Help: "Boxes of an earlier daemon that cannot be reached for now.", Value: float64(st.Absent)},
		{Name: "sunaba_goroutines", Help: "Goroutines of the daemon.", Value: float64(runtime.NumGoroutine())},
		{Name: "sunaba_open_files", Help: "Descriptors of the daemon.", Value: float64(openFiles())},
		{Name: "sunaba_gateways", Help: "Gateways of boxes with a network; there are more than one if one has ended again.", Value: float64(net.Gateways)},
		{Name: "sunaba_gateways_ended_total", Help: "Gateways that ended by themselves.", Value: float64(net.Ends), Total: true},
		{Name: "sunaba_boxes_without_gateway", Help: "Boxes with a network whose gateway is not there.", Value: float64(net.Without)},
	}
	// The same shape has the same number for as long as no other comes or goes.
	slices.SortFunc(st.Warm, func(a, b pool.Stat) int { return strings.Compare(fmt.Sprint(a.Shape), fmt.Sprint(b.Shape)) })
	for i, w := range st.Warm {
		shape := strconv.Itoa(i + 1)
		for _, v := range []struct {
			state string
			n     int
		}{{"wanted", w.Want}, {"ready", w.Ready}, {"making", w.Making}, {"waiting", w.Waiting}} {
			out = append(out, server.Gauge{Name: "sunaba_warm", Help: "Warm boxes, of each shape that is kept.", Labels: []string{"shape", shape, "tier", string(w.Shape.Tier), "template", w.Shape.Template, "state", v.state}, Value: float64(v.n)})
		}
	}
	for tier, n := range st.Boxes {
		out = append(out, server.Gauge{Name: "sunaba_boxes", Help: "Boxes that last, alive.", Labels: []string{"tier", string(tier)}, Value: float64(n)})
	}
	return out
}

func openFiles() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(all) - 1 // the one that lists them
}

// signKey reads the key that signs URLs of files, or makes one: they outlive the
// daemon.
func signKey(dir string) ([]byte, error) {
	name := filepath.Join(dir, "sign.key")
	key := make([]byte, 32)
	rand.Read(key) // never fails: crypto/rand ends the program instead
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if key, err = os.ReadFile(name); err == nil && len(key) != 32 {
			err = errors.New("it does not have 32 bytes; remove it, and URLs that were signed end")
		}
		if err != nil {
			return nil, box.Errorf(box.Unusable, "serve", "cannot read %s: %w", name, err)
		}
		return key, nil
	}
	if err == nil {
		_, err = f.Write(key)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return nil, box.Errorf(box.Unusable, "serve", "cannot make %s: %w", name, err)
	}
	return key, nil
}

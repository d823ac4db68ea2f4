package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/jail"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
	"github.com/sunaba-dev/sunaba/internal/host/trial"
)

// networkHealth is what `sunaba doctor` finds of the network of boxes. Boxes without
// one need none of it.
type networkHealth struct {
	Usable bool       `json:"usable"`
	Steps  []box.Step `json:"steps"`
}

// Names of the steps.
const (
	stepGateway   = "gateway"
	stepResolvers = "resolvers"
	stepPair      = "link of gvisor boxes"
)

const networkTime = 20 * time.Second

// diagnoseNetwork tries what a box with a network needs beside what all need.
func diagnoseNetwork(ctx context.Context) networkHealth {
	ctx, cancel := context.WithTimeout(ctx, networkTime)
	defer cancel()
	steps := []box.Step{tryGateway(ctx), tryPair(), tryLink(ctx), tryResolvers("/etc/resolv.conf")}
	h := networkHealth{Usable: true, Steps: steps}
	for _, s := range steps {
		h.Usable = h.Usable && s.State != box.Missing
	}
	return h
}

// tryGateway starts one, which confines itself and answers.
func tryGateway(ctx context.Context) box.Step {
	k := newKeeper(nil, nil, slog.New(slog.DiscardHandler))
	defer k.Close()
	pid, err := k.Try(ctx)
	if err != nil {
		return trial.Missing(stepGateway, err, "use a kernel with Landlock (CONFIG_SECURITY_LANDLOCK, lsm=landlock,...); the program must be readable and executable for all")
	}
	who := "as this user"
	if host.IsRoot() {
		who = fmt.Sprintf("as host user %d", gatewayUser)
	}
	return trial.Works(stepGateway, fmt.Sprintf("started %s (process %d): no capability, no file but what boxes used up, only system calls that move bytes; it answers", who, pid))
}

func tryPair() box.Step {
	a, b, err := nic.Pair()
	if err != nil {
		return trial.Missing(stepPair, err, "")
	}
	defer a.Close()
	defer b.Close()
	if _, err = b.Write(make([]byte, box.LinkMTU)); err == nil {
		_, err = a.Read(make([]byte, box.LinkMTU))
	}
	if err != nil {
		return trial.Missing(stepPair, fmt.Errorf("cannot pass a packet of %d bytes: %w", box.LinkMTU, err), "let sockets have more room: sysctl -w net.core.wmem_max=425984")
	}
	return trial.Works(stepPair, fmt.Sprintf("a pair of sockets, which passes packets of %d bytes", box.LinkMTU))
}

// tryLink lets a child in namespaces like a box's make one.
func tryLink(ctx context.Context) box.Step {
	s := host.Spawn{Args: []string{trial.Argv, trial.Link, trial.DevicesHost}, HostUID: os.Getuid(), HostGID: os.Getgid(), Caps: []uintptr{12, 13}} // CAP_NET_ADMIN, CAP_NET_RAW
	if host.IsRoot() {
		s.HostUID, s.HostGID = gatewayUser, gatewayUser
		if devices, err := jail.Devices("tun"); err == nil {
			defer devices.Close()
			s.Args[2], s.Files = trial.DevicesPassed, []*os.File{devices}
		}
	}
	out, err := s.Try(ctx, host.NamespaceBox)
	var steps []box.Step
	if err == nil {
		if err = json.Unmarshal(out, &steps); err == nil && len(steps) != 1 {
			err = errors.New("cannot try it: the child said nothing")
		}
	}
	if err != nil {
		return trial.Missing(trial.StepLink, err, "the steps of tier process say which namespace is refused")
	}
	return steps[0]
}

func tryResolvers(file string) box.Step {
	all, err := systemResolvers(file)
	switch {
	case err != nil:
		return box.Step{Name: stepResolvers, State: box.Weak, Detail: err.Error(), Advice: "name some: --resolver ADDRESS"}
	case len(all) == 0:
		return box.Step{Name: stepResolvers, State: box.Weak, Detail: "none in " + file + ": no name leads anywhere", Advice: "name some: --resolver ADDRESS"}
	}
	var names []string
	for _, a := range all {
		names = append(names, a.String())
	}
	return trial.Works(stepResolvers, "of this host, not asked: "+strings.Join(names, ", "))
}

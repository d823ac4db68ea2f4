package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/config"
	"github.com/sunaba-dev/sunaba/internal/engine"
	"github.com/sunaba-dev/sunaba/internal/tier/gvisor"
)

func runCommand(args []string) int {
	cfg := config.Default()
	state, err := stateDir("")
	if err != nil {
		fmt.Fprintln(os.Stderr, "sunaba:", err)
		return exitFault
	}
	e, err := newEngine(state, gvisor.Config{Debug: os.Getenv("SUNABA_DEBUG"), Janitor: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, "sunaba:", err)
		return exitFault
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := cfg.Request()
	p.Spec.Tenant = "local"
	rep, err := e.Run(ctx, engine.Request{
		Policy:  p,
		Command: box.Command{Argv: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user"}},
		User:    cfg.User,
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "sunaba:", err)
	}
	if os.Getenv("J") != "" {
		b, _ := json.MarshalIndent(rep, "", " ")
		fmt.Fprintln(os.Stderr, string(b))
	}
	return exitCode(rep)
}

func doctorCommand([]string) int { return 0 }
func versionCommand() int        { return 0 }

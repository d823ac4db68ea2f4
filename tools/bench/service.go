package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"time"
)

// service is a daemon of the enclosure's own, used as a client would: by HTTP,
// over connections that stay open.
type service struct {
	absent string

	cmd    *exec.Cmd
	url    string
	client http.Client
}

const serviceKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// serving is what the daemon logs when it can be reached.
var serving = regexp.MustCompile(`msg=serving address=(\S+)`) //house:const

func (s *service) start(ctx context.Context, dir scratch, program string, more ...string) {
	if err := s.try(ctx, dir, program, more); err != nil {
		s.absent = oneLine(err)
	}
}

func (s *service) try(ctx context.Context, dir scratch, program string, more []string) error {
	out, err := os.OpenFile(dir.path("service.log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	file := dir.path("templates.yaml")
	if err := dir.file("templates.yaml", []byte(templates)); err != nil {
		return err
	}
	args := append([]string{"serve", "--state", dir.path("state"), "--listen", "127.0.0.1:0", "--destroy-boxes", "--open-metrics", "--max-boxes", "1000", "--warm", "6", "--templates", file}, more...)
	cmd := exec.Command(program, args...)
	cmd.Env = append(childEnv(), "SUNABA_API_KEY="+serviceKey)
	cmd.Stderr = out
	s.cmd = cmd
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the daemon: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		said := bufio.NewScanner(io.NewSectionReader(out, 0, 1<<20))
		for said.Scan() {
			if m := serving.FindStringSubmatch(said.Text()); m != nil {
				s.url = "http://" + m[1]
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot reach the daemon: see %s", out.Name())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *service) stop() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	return errors.Join(s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait())
}

// call makes a request and decodes the answer.
func (s *service) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+serviceKey)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, b)
	case out == nil:
		return nil
	}
	return json.Unmarshal(b, out)
}

// metrics is what the daemon says of itself.
func (s *service) metrics(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// made is what the service says of a box.
type made struct {
	ID          string `json:"id"`
	Start       string `json:"start"`
	StartReason string `json:"start_reason"`
}

// create makes a box, which must come about as start says, if it says anything.
func (s *service) create(ctx context.Context, start string, req map[string]any) (made, error) {
	var m made
	if err := s.call(ctx, "POST", "/v1/boxes", req, &m); err != nil {
		return m, err
	}
	if start != "" && m.Start != start {
		err := fmt.Errorf("the box's start was %s (%s), not %s", m.Start, m.StartReason, start)
		return m, errors.Join(err, s.destroy(ctx, m))
	}
	return m, nil
}

func (s *service) destroy(ctx context.Context, m made) error {
	return s.call(ctx, "DELETE", "/v1/boxes/"+m.ID, nil, nil)
}

// exec runs a program in a box and writes what it says to out.
func (s *service) exec(ctx context.Context, m made, program []string, out io.Writer) error {
	var res struct {
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		ExitCode *int   `json:"exit_code"`
	}
	if err := s.call(ctx, "POST", "/v1/boxes/"+m.ID+"/exec", map[string]any{"command": program}, &res); err != nil {
		return err
	}
	if res.ExitCode == nil || *res.ExitCode != 0 {
		return fmt.Errorf("the program failed: %s", res.Stderr)
	}
	_, err := io.WriteString(out, res.Stdout)
	return err
}

// code runs Python in the box's interpreter and writes what it says to out.
func (s *service) code(ctx context.Context, m made, code string, out io.Writer) error {
	var res struct {
		Stdout string `json:"stdout"`
		Cause  string `json:"cause"`
	}
	if err := s.call(ctx, "POST", "/v1/boxes/"+m.ID+"/code", map[string]any{"language": "python", "code": code}, &res); err != nil {
		return err
	}
	_, err := io.WriteString(out, res.Stdout)
	return err
}

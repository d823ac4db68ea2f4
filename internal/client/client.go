// Package client speaks to a daemon over its REST interface, and is what the
// command line and `sunaba mcp --server` do with boxes: it implements
// box.Service and box.Guest, so that who uses it does not know where the boxes
// are.
//
// It knows no more than docs/rest.md says, and takes what it hears for what it
// is: a stranger's. Sizes are bounded, a redirect is not followed (the key would
// follow it), and an answer that is not understood is an error. A stream that
// breaks off is taken up again where it broke, so that every byte comes once.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// maxAnswer bounds an answer that is one document, in bytes.
const maxAnswer = 64 << 20

// Client is a connection to a daemon. The Caller that methods of box.Service
// take is not looked at: the key says who asks. It is safe for concurrent use.
type Client struct {
	base *url.URL
	key  string
	http *http.Client
}

var _ box.Service = (*Client)(nil)

// New returns a client of the daemon at address, as in http://127.0.0.1:7462.
// Nothing is sent yet.
func New(address, key string) (*Client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil:
		return nil, box.Errorf(box.Invalid, "reach daemon", "cannot use server %q: give a URL as http://127.0.0.1:7462", address)
	case key == "":
		return nil, box.Errorf(box.Denied, "reach daemon", "cannot reach the daemon at %s: there is no API key", address).
			WithHint("set SUNABA_API_KEY; `sunaba serve` prints one at its first start, and `sunaba serve -h` says what to do about a lost one")
	case strings.ContainsAny(key, "\r\n\x00 "):
		return nil, box.Errorf(box.Invalid, "reach daemon", "cannot use the API key: it has a space or a line break in it")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return &Client{base: u, key: key, http: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 0},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// call is one request.
type call struct {
	method string
	path   string // escaped, below /v1
	query  url.Values
	header map[string]string
	in     any       // sent as JSON, if body is nil
	body   io.Reader // sent as it is
}

// send sends a request and returns an answer that is no error. Its body is to
// be closed.
func (c *Client) send(ctx context.Context, q call) (*http.Response, error) {
	body, kind := q.body, "application/octet-stream"
	if body == nil && q.in != nil {
		b, err := json.Marshal(q.in)
		if err != nil {
			return nil, box.Errorf(box.Fault, "ask daemon", "cannot write request: %w", err)
		}
		body, kind = bytes.NewReader(b), "application/json"
	}
	u := c.base.String() + "/v1" + q.path
	if len(q.query) > 0 {
		u += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, u, body)
	if err != nil {
		return nil, box.Errorf(box.Fault, "ask daemon", "cannot write request: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", kind)
	}
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	res, err := c.http.Do(r)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			res.Body.Close()
		}
		return nil, ctx.Err()
	case err != nil:
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // it repeats the URL
		}
		return nil, box.Errorf(box.Unavailable, "reach daemon", "cannot reach the daemon at %s: %w", c.base, err).
			WithHint("start one with `sunaba serve`, or name it with --server or SUNABA_SERVER")
	case res.StatusCode >= 200 && res.StatusCode < 300:
		return res, nil
	}
	defer res.Body.Close()
	return nil, c.refused(res)
}

// do sends a request and decodes the answer into out, if that is not nil.
func (c *Client) do(ctx context.Context, q call, out any) error {
	res, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return box.Errorf(box.Unavailable, "ask daemon", "cannot read the daemon's answer: %w", err)
	case len(b) > maxAnswer:
		return box.Errorf(box.Fault, "ask daemon", "cannot read the daemon's answer: it is longer than %d bytes", maxAnswer)
	}
	return understand(b, out)
}

func understand(b []byte, out any) error {
	if err := json.Unmarshal(b, out); err != nil {
		return box.Errorf(box.Fault, "ask daemon", "cannot understand the daemon's answer: %w", err)
	}
	return nil
}

// problem is how the daemon tells an error.
type problem struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
	Hint      string `json:"hint"`
}

func (c *Client) refused(res *http.Response) error {
	var p problem
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Message == "" {
		return box.Errorf(box.Fault, "ask daemon", "cannot understand the daemon at %s: it answers %s", c.base, res.Status).
			WithHint("is it a sunaba daemon of this version?")
	}
	if p.Code == 0 {
		p.Code = res.StatusCode
	}
	e := p.error()
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		e.Retry = time.Duration(n) * time.Second
	}
	return e
}

// error gives a problem the kind that it had at the other end.
func (p problem) error() *box.Error {
	kinds := []box.Kind{box.Invalid, box.Denied, box.Unsupported, box.Unusable, box.NotFound, box.Conflict, box.Unavailable, box.Exhausted, box.Fault}
	kind := box.Kind(p.ErrorCode)
	switch {
	case slices.Contains(kinds, kind):
	case p.Code == http.StatusUnauthorized || p.Code == http.StatusMisdirectedRequest:
		kind = box.Denied
	case p.Code == http.StatusRequestTimeout:
		kind = box.Unavailable
	case p.Code >= 400 && p.Code < 500:
		kind = box.Invalid
	default:
		kind = box.Fault
	}
	return &box.Error{Op: "ask daemon", Kind: kind, Message: p.Message, Hint: p.Hint}
}

func segment(s string) string { return url.PathEscape(s) }

func boxPath(id box.ID, rest ...string) string {
	return "/boxes/" + segment(string(id)) + strings.Join(rest, "")
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// environment turns NAME=VALUE into what JSON has.
func environment(env []string) (map[string]string, error) {
	if len(env) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return nil, box.Errorf(box.Invalid, "read environment", "cannot set environment %q: give NAME=VALUE", e)
		}
		m[name] = value
	}
	return m, nil
}

func wrong(format string, args ...any) error {
	return box.Errorf(box.Fault, "ask daemon", "cannot understand the daemon's answer: %s", fmt.Sprintf(format, args...))
}

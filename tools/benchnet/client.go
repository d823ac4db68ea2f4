package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"time"
)

// turn is what one turn measured.
type turn struct {
	Connect  float64 // ms from nothing to the answer of a first request, name and TLS included; median
	Name     float64 // of which: ms until the name had an address,
	Dial     float64 // then until there was a connection,
	TLS      float64 // then until it spoke TLS
	Request  float64 // ms of a small request on a connection that is open; median
	Download float64 // MB/s
	Upload   float64
}

// client is the program that is measured, in a box or not.
func client(args []string) error {
	fs := flag.NewFlagSet("client", flag.ContinueOnError)
	at := fs.String("at", "", "address to dial instead of the name's")
	proxy := fs.String("proxy", "", "host:port of a proxy to ask by CONNECT")
	conns, ping, mega := fs.Int("conns", 30, ""), fs.Int("requests", 100, ""), fs.Int("megabytes", 64, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the bytes are what is measured
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			if *at != "" {
				to = *at
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to)
		},
		WriteBufferSize: 1 << 18, ReadBufferSize: 1 << 18,
	}
	if *proxy != "" {
		tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: *proxy})
	}
	c := &http.Client{Transport: tr, Timeout: 2 * time.Minute}
	var p parts
	var connects, requests []float64
	for range *conns {
		tr.CloseIdleConnections()
		d, err := once(c, 1, 0, &p)
		if err != nil {
			return err
		}
		connects = append(connects, ms(d))
	}
	for range *ping {
		d, err := once(c, 1, 0, nil)
		if err != nil {
			return err
		}
		requests = append(requests, ms(d))
	}
	size := *mega << 20
	down, err := once(c, size, 0, nil)
	if err != nil {
		return err
	}
	up, err := once(c, 1, size, nil)
	if err != nil {
		return err
	}
	out := turn{median(connects), median(p.name), median(p.dial), median(p.tls), median(requests), float64(size) / 1e6 / down.Seconds(), float64(size) / 1e6 / up.Seconds()}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func once(c *http.Client, down, up int, parts *parts) (time.Duration, error) {
	begin := time.Now()
	var body io.Reader = http.NoBody
	if up > 0 {
		body = io.LimitReader(zero{}, int64(up))
	}
	q, err := http.NewRequest(http.MethodPost, fmt.Sprintf("https://%s/?n=%d", name, down), body)
	if err != nil {
		return 0, err
	}
	q.ContentLength = int64(up)
	if parts != nil {
		var at time.Time
		mark := func(p *[]float64) {
			*p = append(*p, ms(time.Since(at)))
			at = time.Now()
		}
		at = begin
		q = q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{
			DNSDone:          func(httptrace.DNSDoneInfo) { mark(&parts.name) },
			ConnectDone:      func(string, string, error) { mark(&parts.dial) },
			TLSHandshakeDone: func(tls.ConnectionState, error) { mark(&parts.tls) },
		}))
	}
	r, err := c.Do(q)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 1<<18))
	if err == nil && n != int64(down) {
		err = errors.New("read less than was asked for")
	}
	return time.Since(begin), err
}

type parts struct{ name, dial, tls []float64 }

// zero is a source of bytes that does not end.
type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}

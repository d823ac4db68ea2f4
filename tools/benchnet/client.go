package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	neturl "net/url"
	"os"
	"time"
)

// turn is what one turn measured.
type turn struct {
	Connects []float64 // ms from nothing to the answer of a first request, name and TLS included
	Name     float64   // of which: ms until the name had an address,
	Dial     float64   // then until there was a connection,
	TLS      float64   // then until it spoke TLS; medians
	Requests []float64 // ms of a small request on a connection that is open
	Download float64   // MB/s
	Upload   float64
}

// client is the program that is measured, in a box or not.
func client(args []string) error {
	fs := flag.NewFlagSet("client", flag.ContinueOnError)
	url := fs.String("url", "", "what to ask")
	ca := fs.String("ca", "", "file with the certificate that the server has: whoever ends TLS on the way fails")
	at := fs.String("at", "", "address to dial instead of the name's")
	proxy := fs.String("proxy", "", "host:port of a proxy to ask by CONNECT")
	ask := fs.String("ask", "", "host:port of a server to ask for the name at each connection, on a way that needs no address")
	known := fs.Bool("known", false, "ask for the name once, and not at each connection")
	bulk := fs.Bool("bulk", true, "measure requests, downloads and uploads, too")
	conns, ping, mega := fs.Int("conns", 30, ""), fs.Int("requests", 100, ""), fs.Int("megabytes", 64, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("there is no certificate in " + *ca)
	}
	if *known {
		u, err := neturl.Parse(*url)
		if err != nil {
			return err
		}
		found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip4", u.Hostname())
		if err != nil {
			return err
		}
		*at = found[0].Unmap().String()
	}
	asked := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, *ask)
	}}
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			if *at != "" {
				_, port, _ := net.SplitHostPort(to)
				to = net.JoinHostPort(*at, port)
			}
			if *ask != "" {
				if _, err := asked.LookupNetIP(ctx, "ip", name); err != nil {
					return nil, err
				}
			}
			var d net.Dialer
			return d.DialContext(ctx, network, to)
		},
		WriteBufferSize: 1 << 18, ReadBufferSize: 1 << 18,
	}
	if *proxy != "" {
		tr.Proxy = func(*http.Request) (*neturl.URL, error) { return &neturl.URL{Scheme: "http", Host: *proxy}, nil }
	}
	c := &http.Client{Transport: tr, Timeout: 2 * time.Minute}
	var p parts
	var connects, requests []float64
	for range *conns {
		tr.CloseIdleConnections()
		d, err := once(c, *url, 1, 0, &p)
		if err != nil {
			return err
		}
		connects = append(connects, ms(d))
	}
	out := turn{Connects: connects, Name: part(p.name), Dial: part(p.dial), TLS: part(p.tls)}
	if !*bulk {
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	for range *ping {
		d, err := once(c, *url, 1, 0, nil)
		if err != nil {
			return err
		}
		requests = append(requests, ms(d))
	}
	size := *mega << 20
	down, err := once(c, *url, size, 0, nil)
	if err != nil {
		return err
	}
	up, err := once(c, *url, 1, size, nil)
	if err != nil {
		return err
	}
	out.Requests, out.Download, out.Upload = requests, float64(size)/1e6/down.Seconds(), float64(size)/1e6/up.Seconds()
	return json.NewEncoder(os.Stdout).Encode(out)
}

func once(c *http.Client, url string, down, up int, parts *parts) (time.Duration, error) {
	begin := time.Now()
	var body io.Reader = http.NoBody
	if up > 0 {
		body = io.LimitReader(zero{}, int64(up))
	}
	q, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s?n=%d", url, down), body)
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

// part is the median, 0 of a part that the way has not.
func part(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return median(list)
}

// zero is a source of bytes that does not end.
type zero struct{}

func (zero) Read(b []byte) (int, error) { return len(b), nil }

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

package rest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

const signedPath = "/v1/signed"

type signRequest struct {
	BoxPath
	Body struct {
		PathBody
		Method  string `json:"method" enum:"GET,PUT"`
		Expires int64  `json:"expires_sec,omitempty" minimum:"1" maximum:"86400" doc:"For how long; 3600 if absent."`
	}
}

// Signed is a URL that takes no key.
type Signed struct {
	URL     string    `json:"url" doc:"Anybody who has it can use it until it expires, or until the box is gone."`
	Method  string    `json:"method"`
	Expires time.Time `json:"expires_at"`
}

// grant is what a signature covers.
type grant struct {
	tenant, principal, box, path, method string
	expires                              int64 // in seconds since 1970
}

// sign is HMAC-SHA256 (RFC 2104) of all fields, each with its length before it,
// so that no two grants are the same bytes.
func (g grant) sign(key []byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, s := range []string{"sunaba file v1", g.tenant, g.principal, g.box, g.path, g.method, strconv.FormatInt(g.expires, 10)} {
		m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		m.Write([]byte(s))
	}
	return m.Sum(nil)
}

// scopeOf is the right that a method takes.
func scopeOf(method string) box.Scope {
	if method == http.MethodPut {
		return box.ScopeWrite
	}
	return box.ScopeRead
}

// canSign refuses if there is no key to sign with.
func (a *API) canSign() error {
	if len(a.SignKey) < 32 {
		return box.Errorf(box.Unsupported, "sign", "cannot use signed URLs: this server has no key for them")
	}
	return nil
}

func (a *API) sign(ctx context.Context, in *signRequest) (Signed, error) {
	if err := a.canSign(); err != nil {
		return Signed{}, err
	}
	p, err := pathOf(in.Body.Path, in.Body.Base64)
	if err != nil {
		return Signed{}, err
	}
	if _, err := a.guest(ctx, in.ID, scopeOf(in.Body.Method)); err != nil {
		return Signed{}, err
	}
	valid := in.Body.Expires
	if valid == 0 {
		valid = 3600
	}
	c := server.CallerOf(ctx)
	expires := time.Now().Add(time.Duration(valid) * time.Second).Truncate(time.Second)
	g := grant{c.Tenant, c.Principal, in.ID, p, in.Body.Method, expires.Unix()}
	q := url.Values{
		"tenant": {g.tenant}, "principal": {g.principal}, "box": {g.box}, "method": {g.method},
		"path_base64": {base64.RawURLEncoding.EncodeToString([]byte(p))},
		"expires":     {strconv.FormatInt(g.expires, 10)},
		"signature":   {base64.RawURLEncoding.EncodeToString(g.sign(a.SignKey))},
	}
	return Signed{URL: a.URL + signedPath + "?" + q.Encode(), Method: g.method, Expires: expires.UTC()}, nil
}

// SignedRequest is what a signed URL says.
type SignedRequest struct {
	Tenant    string `query:"tenant" required:"true" maxLength:"256"`
	Principal string `query:"principal" required:"true" maxLength:"256"`
	Box       string `query:"box" required:"true" maxLength:"64"`
	Path      string `query:"path_base64" required:"true" maxLength:"8192"`
	Method    string `query:"method" required:"true" enum:"GET,PUT"`
	Expires   int64  `query:"expires" required:"true"`
	Signature string `query:"signature" required:"true" maxLength:"64"`
}

// redeem returns the box and the path that a signed URL is for. Whatever is
// wrong with it is told in the same words.
func (a *API) redeem(r *http.Request, in *SignedRequest) (box.Guest, string, error) {
	if err := a.canSign(); err != nil {
		return nil, "", err
	}
	refused := box.Errorf(box.Denied, "check signature", "cannot use this URL: it is not valid, or no more").WithHint("have it signed anew")
	p, err := pathOf("", in.Path)
	if err != nil {
		return nil, "", refused
	}
	got, err := base64.RawURLEncoding.DecodeString(in.Signature)
	if err != nil {
		return nil, "", refused
	}
	g := grant{in.Tenant, in.Principal, in.Box, p, in.Method, in.Expires}
	if !hmac.Equal(got, g.sign(a.SignKey)) || in.Method != r.Method || time.Now().Unix() >= in.Expires {
		return nil, "", refused
	}
	s := scopeOf(in.Method)
	guest, err := a.Service.Guest(r.Context(), box.Caller{Tenant: in.Tenant, Principal: in.Principal, Scopes: []box.Scope{s}}, box.ID(in.Box), s)
	return guest, p, err
}

type signedRead struct {
	SignedRequest
	Range string `header:"Range" maxLength:"128"`
}

func (a *API) signedRead(w http.ResponseWriter, r *http.Request, in *signedRead) error {
	g, p, err := a.redeem(r, &in.SignedRequest)
	if err != nil {
		return err
	}
	return a.sendFile(w, r, g, p)
}

func (a *API) signedWrite(w http.ResponseWriter, r *http.Request, in *SignedRequest) error {
	g, p, err := a.redeem(r, in)
	if err != nil {
		return err
	}
	return a.takeFile(w, r, g, p, box.WriteOptions{})
}

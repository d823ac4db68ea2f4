package server

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

// maxKey bounds a key, in bytes.
const maxKey = 256

// authenticate finds who asks. A key comes as X-API-Key, or as a bearer token
// (RFC 6750, section 2.1), never in the URL, which ends up in logs.
func (s *front) authenticate(r *http.Request) (box.Caller, error) {
	const hint = "send a key as X-API-Key, or as Authorization: Bearer"
	key, ok := keyOf(r.Header)
	if !ok {
		return box.Caller{}, Bad(http.StatusUnauthorized, Unauthenticated, hint, "cannot authenticate: there is no key, or more than one")
	}
	caller, err := s.Auth(r.Context(), key)
	if err == nil && (caller.Tenant == "" || caller.Principal == "") {
		return box.Caller{}, box.Errorf(box.Fault, "authenticate", "cannot authenticate: the key belongs to nobody")
	}
	switch box.KindOf(err) {
	case box.Denied, box.NotFound, box.Invalid:
		return box.Caller{}, Bad(http.StatusUnauthorized, Unauthenticated, hint, "cannot authenticate: the key is not valid")
	}
	return caller, err
}

// keyOf returns the one key of a request.
func keyOf(h http.Header) (string, bool) {
	keys := slices.Clone(h.Values("X-API-Key"))
	for _, v := range h.Values("Authorization") {
		scheme, token, ok := strings.Cut(v, " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			return "", false
		}
		keys = append(keys, strings.TrimSpace(token))
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(keys) != 1 || keys[0] == "" || len(keys[0]) > maxKey {
		return "", false
	}
	return keys[0], true
}

// knows reports whether a Host header names this server.
func (s *front) knows(host string) bool {
	if !s.Loopback && len(s.Hosts) == 0 {
		return true
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if s.Loopback && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, name) {
		return true
	}
	return slices.ContainsFunc(s.Hosts, func(h string) bool { return strings.EqualFold(strings.Trim(h, "[]"), name) })
}

package servertest

import (
	"context"
	"encoding/json"

	"github.com/sunaba-dev/sunaba/box"
)

// Network implements box.NetworkService: of boxes without one.
func (s *Service) Network(_ context.Context, c box.Caller, id box.ID) (box.NetworkInfo, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return box.NetworkInfo{}, err
	}
	if _, err := s.find(c, id); err != nil {
		return box.NetworkInfo{}, err
	}
	return box.NetworkInfo{Mode: box.NetNone, Traffic: box.Traffic{Denied: []box.Denial{}}}, nil
}

// SetNetwork implements box.NetworkService, and remembers nothing.
func (s *Service) SetNetwork(_ context.Context, c box.Caller, id box.ID, wanted json.RawMessage) (box.NetworkInfo, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.NetworkInfo{}, err
	}
	if _, err := s.find(c, id); err != nil {
		return box.NetworkInfo{}, err
	}
	return box.NetworkInfo{Mode: box.NetAllowlist, Up: true, Rules: []byte(`{"version":1}`), Asked: wanted, Traffic: box.Traffic{Generation: 2, Denied: []box.Denial{}}}, nil
}

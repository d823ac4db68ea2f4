package servertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// held is a volume of a tenant's. No box of this service has one.
type held struct {
	box.VolumeInfo
	tenant string
}

// CreateVolume implements box.VolumeService.
func (s *Service) CreateVolume(_ context.Context, c box.Caller, name string, bytes int64) (box.VolumeInfo, error) {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return box.VolumeInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.volume(c, name)
	switch {
	case err == nil && s.volumes[at].Bytes != bytes:
		return box.VolumeInfo{}, box.Errorf(box.Conflict, "make volume", "cannot make volume %q: there is one of that name", name)
	case err == nil:
		return s.volumes[at].VolumeInfo, nil
	}
	v := held{box.VolumeInfo{Name: name, Bytes: bytes, Used: bytes, Boxes: []box.ID{}, Created: time.Now().UTC()}, c.Tenant}
	s.volumes = append(s.volumes, v)
	return v.VolumeInfo, nil
}

// Volumes implements box.VolumeService.
func (s *Service) Volumes(_ context.Context, c box.Caller) ([]box.VolumeInfo, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []box.VolumeInfo
	for _, v := range s.volumes {
		if v.tenant == c.Tenant {
			out = append(out, v.VolumeInfo)
		}
	}
	slices.SortFunc(out, func(a, b box.VolumeInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// volume finds one. The lock is held.
func (s *Service) volume(c box.Caller, name string) (int, error) {
	at := slices.IndexFunc(s.volumes, func(v held) bool { return v.tenant == c.Tenant && v.Name == name })
	if at < 0 {
		return 0, box.Errorf(box.NotFound, "find volume", "cannot find this volume")
	}
	return at, nil
}

// InspectVolume implements box.VolumeService.
func (s *Service) InspectVolume(_ context.Context, c box.Caller, name string) (box.VolumeInfo, error) {
	if err := s.may(c, box.ScopeRead); err != nil {
		return box.VolumeInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.volume(c, name)
	if err != nil {
		return box.VolumeInfo{}, err
	}
	return s.volumes[at].VolumeInfo, nil
}

// DeleteVolume implements box.VolumeService.
func (s *Service) DeleteVolume(_ context.Context, c box.Caller, name string) error {
	if err := s.may(c, box.ScopeWrite); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.volume(c, name)
	if err == nil {
		s.volumes = slices.Delete(s.volumes, at, at+1)
	}
	return err
}

package contexts

import (
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"sort"
	"time"
)

// returnTime is how long a caller whose stream was cut because the box stood
// still may take to come back.
const returnTime = 5 * time.Second

// Renew seeds the random numbers of all interpreters anew, each by what it makes
// of the entropy and its place among them: one that runs a cell when that has
// ended, before its next one.
func (s *Service) Renew(entropy []byte) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for _, c := range s.sessions {
		all = append(all, c)
	}
	s.mu.Unlock()
	age := func(c *session) time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.started
	}
	sort.Slice(all, func(i, j int) bool { return age(all[i]).Before(age(all[j])) })
	for i, c := range all {
		sum := sha512.Sum512(binary.BigEndian.AppendUint32(entropy[:len(entropy):len(entropy)], uint32(i)))
		c.mu.Lock()
		c.seed = hex.EncodeToString(sum[:])
		c.mu.Unlock()
		c.poke()
	}
}

// poke has the goroutine of its life look around.
func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reseed passes the seed on, if there is one. The interpreter reads it before
// the next cell.
func (s *session) reseed(l *life) {
	s.mu.Lock()
	seed := s.seed
	s.seed = ""
	s.mu.Unlock()
	if seed != "" {
		l.say(l.lang.line(command{Op: "renew", Seed: seed}))
	}
}

// abandon interrupts a cell whose caller has gone away. If the box stood still
// then, that is no sign of it: the caller comes back.
func (s *session) abandon(c *cell) {
	if !s.clock.HeldWithin(returnTime) {
		s.cancel(c)
		return
	}
	s.mu.Lock()
	came := c.attached
	s.mu.Unlock()
	s.clock.AfterFunc(returnTime, func() {
		s.mu.Lock()
		back := c.attached > came
		s.mu.Unlock()
		if !back {
			s.cancel(c)
		}
	})
}

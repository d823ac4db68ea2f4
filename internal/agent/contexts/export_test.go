package contexts

// Between is how much a context has printed since its last cell, in bytes.
func (s *Service) Between(id string) int64 {
	c, err := s.find(id)
	if err != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.between.text[0])+len(c.between.text[1])) + c.between.dropped
}

// Queued is how many cells wait in a context, which nobody else needs to know.
func (s *Service) Queued(id string) int {
	c, err := s.find(id)
	if err != nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

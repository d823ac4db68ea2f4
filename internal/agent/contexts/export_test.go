package contexts

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

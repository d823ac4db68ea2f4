package contexts

// record remembers cells: the last ones with their story, and for longer that
// they were run, so that none is run twice.
type record struct {
	cells map[string]*cell
	order []*cell
}

func (r *record) add(c *cell) {
	if r.cells == nil {
		r.cells = map[string]*cell{}
	}
	r.cells[c.id] = c
	r.order = append(r.order, c)
	if len(r.order) > maxKnown {
		delete(r.cells, r.order[0].id)
		r.order = r.order[1:]
	}
}

// trim forgets stories, the oldest first, until those of cells that are over are
// few and small. The last of them stays whatever its size.
func (r *record) trim() {
	kept, cost := 0, int64(0)
	for i := len(r.order) - 1; i >= 0; i-- {
		c := r.order[i]
		if c.story == nil || !c.story.ended() {
			continue
		}
		n := c.story.cost()
		if kept > 0 && (kept >= keptCells || cost+n > keptBytes) {
			c.story = nil
			continue
		}
		kept++
		cost += n
	}
}

// between is what the interpreter prints while no cell runs: threads, timers and
// background jobs. The next cell gets it.
type between struct {
	text    [2][]byte
	dropped int64
}

func (b *between) write(stream int, text []byte) {
	room := maxBetween - len(b.text[0]) - len(b.text[1])
	if len(text) > room {
		b.dropped += int64(len(text) - room)
		text = text[:room]
	}
	b.text[stream] = append(b.text[stream], text...)
}

// give passes it on.
func (b *between) give(s *story) {
	for stream, text := range b.text {
		if len(text) > 0 {
			s.write(stream, text)
		}
	}
	if b.dropped > 0 {
		s.drop(b.dropped)
	}
	*b = between{}
}

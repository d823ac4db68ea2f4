package hostile

import "testing"

// apiCase is an attack that needs the caller's side as well.
type apiCase struct {
	id   string
	what string
	run  func(t *testing.T, p place)
}

func apiCases() []apiCase { return nil }

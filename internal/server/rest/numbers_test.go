package rest

import "testing"

func TestBoundsAreWrittenAsPeopleWriteThem(t *testing.T) {
	for in, want := range map[string]string{
		"expected number >= 1.048576e+06":                  "expected number >= 1048576",
		"expected number <= 8.796093022208e+12":            "expected number <= 8796093022208",
		"expected string to match pattern ^[a-z]e+[0-9]*$": "expected string to match pattern ^[a-z]e+[0-9]*$",
		"expected number >= 0.5":                           "expected number >= 0.5",
	} {
		if got := wholeNumbers(in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

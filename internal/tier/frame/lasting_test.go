package frame

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sunaba-dev/sunaba/box"
)

// Whoever adds to box.Spec finds here that a box that is taken up must know it.
func TestAllOfASpecButItsSeedsIsKept(t *testing.T) {
	var s box.Spec
	fill(reflect.ValueOf(&s).Elem())
	s.Seeds = nil
	raw, err := json.Marshal(wishOf(s))
	if err != nil {
		t.Fatal(err)
	}
	var w wish
	if err := json.Unmarshal(raw, &w); err != nil {
		t.Fatal(err)
	}
	if got := w.spec(); !reflect.DeepEqual(got, s) {
		t.Errorf("kept\n%+v of\n%+v", got, s)
	}
}

// fill sets every field to something that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(time.Second))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	}
}

func TestABoxThatIsNotUpInTimeMayBeAskedForAgain(t *testing.T) {
	late := fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	if err := tooLate(t.Context(), late); box.KindOf(err) != box.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v (%v)", err, box.KindOf(err))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for asked, err := range map[context.Context]error{gone: late, t.Context(): errors.New("refused")} {
		if got := tooLate(asked, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

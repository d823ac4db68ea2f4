package frame

import (
	"encoding/json"
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

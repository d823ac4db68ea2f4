package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestTheHostsResolversAreThoseOfItsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# no nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver\nnameserver x\nnameserver 2001:db8::1 # one\nnameserver 192.0.2.4\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := systemResolvers(name)
	if want := "[192.0.2.1:53 [fe80::1%eth0]:53 [2001:db8::1]:53]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	if got, err := systemResolvers(name + "-not-there"); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

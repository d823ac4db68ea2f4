package trial

import (
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/host/nic"
)

// StepLink is the second network interface of a box of host processes.
const StepLink = "link of process boxes"

// link makes it as a box's first process does.
func link(from string) box.Step {
	names := []string{nic.TUN}
	if from == DevicesPassed {
		names = append([]string{host.FDPath(os.NewFile(3, "devices").Fd()) + "/tun"}, names...)
	}
	l, err := nic.Make(names...)
	if err == nil {
		err = nic.Check(l)
	}
	if err != nil {
		return Missing(StepLink, err, "load the kernel's module tun or veth; in a container, let it have /dev/net/tun")
	}
	if l.Kind == box.LinkTUN {
		return Works(StepLink, "a TUN device, in a network namespace")
	}
	return Works(StepLink, "a pair of Ethernet interfaces (veth), since no device file for TUN can be opened; slower")
}

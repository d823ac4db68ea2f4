package gvisor

import (
	"github.com/sunaba-dev/sunaba/internal/host"
)

// What a host may be unable to enforce, in the words that a box reports it in
// and that Probe predicts it in.
const (
	weakMemory = "memory: no control group is usable here; each process's address space is bounded and the box is sampled and ended when it is over the limit"
	weakCPU    = "cpu: no control group is usable here; the guest sees the right number of processors but may use more time than its quota"
	weakDisk   = "disk: the state folder is in memory (tmpfs); what a program writes is bounded by the disk limit but takes memory, and counts against the memory limit where a control group counts"
	weakMount  = "disk: what a program writes into a folder of the host is bounded by that folder's file system alone"
	// Said of a box whose gofer could not be stripped; see goferHook.
	weakCgo = "gofer: this binary was built with cgo, so the file server keeps capabilities in its own user namespace; build with CGO_ENABLED=0"
)

// weakStore says what is weak about the place where stores live.
func (t *Tier) weakStore() []string {
	if mem, err := host.OnMemory(t.StoreDir()); err == nil && mem {
		return []string{weakDisk}
	}
	return nil
}

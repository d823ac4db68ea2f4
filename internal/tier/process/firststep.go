package process

import (
	"fmt"

	"github.com/sunaba-dev/sunaba/internal/agent/cell"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// firstStep returns what a box's first process executes before it becomes the
// cell, as a static program of two hundred bytes, or nil for an architecture
// that it was not written for. It empties the capability bounding set while the
// process has one thread. Linux takes capabilities from that set one at a time,
// and the Go runtime would have to stop all of its threads for each of the 41:
// that took longer than everything else the cell does. The cell checks the set,
// and empties it if this did not.
func firstStep(arch string) []byte {
	if arch != "amd64" {
		return nil
	}
	code := []byte{
		0x31, 0xdb, // xor ebx, ebx
		0xb8, 157, 0, 0, 0, // loop: mov eax, SYS_prctl
		0xbf, 24, 0, 0, 0, // mov edi, PR_CAPBSET_DROP
		0x89, 0xde, // mov esi, ebx
		0x31, 0xd2, // xor edx, edx
		0x45, 0x31, 0xd2, // xor r10d, r10d
		0x45, 0x31, 0xc0, // xor r8d, r8d
		0x0f, 0x05, // syscall; a number that the kernel does not know is EINVAL
		0xff, 0xc3, // inc ebx
		0x83, 0xfb, 64, // cmp ebx, 64
		0x72, 0xe3, // jb loop
		0xb8, 3, 0, 0, 0, // mov eax, SYS_close
		0xbf, cell.FirstFD, 0, 0, 0, // mov edi, FirstFD: this very program
		0x0f, 0x05, // syscall
		0xb8, 59, 0, 0, 0, // mov eax, SYS_execve
		0x48, 0x8d, 0x3d, 21, 0, 0, 0, // lea rdi, [rip+21] (path)
		0x48, 0x8d, 0x74, 0x24, 0x08, // lea rsi, [rsp+8]: argv, as it is
		0x31, 0xd2, // xor edx, edx: no environment
		0x0f, 0x05, // syscall
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0xbf, 127, 0, 0, 0, // mov edi, 127
		0x0f, 0x05, // syscall
	}
	code = append(code, fmt.Sprintf("/proc/self/fd/%d\x00", cell.SelfFD)...)
	return host.TinyELF(host.MachineAMD64, code)
}

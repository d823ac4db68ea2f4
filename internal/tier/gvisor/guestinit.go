package gvisor

import (
	"encoding/binary"
	"fmt"

	"github.com/sunaba-dev/sunaba/internal/host"
)

// guestInit returns the first process of a guest, as a static program of a few
// hundred bytes. It ignores SIGCHLD, so that the guest kernel reaps every
// orphan by itself (sigaction(2), SIG_IGN), and then waits for ever. A whole
// program for this would cost more time than the rest of the guest's start.
func guestInit(arch string) ([]byte, error) {
	var code []byte
	var machine uint16
	le := binary.LittleEndian
	switch arch {
	case "amd64":
		machine = host.MachineAMD64
		code = []byte{
			0xb8, 13, 0, 0, 0, // mov eax, SYS_rt_sigaction
			0xbf, 17, 0, 0, 0, // mov edi, SIGCHLD
			0x48, 0x8d, 0x35, 20, 0, 0, 0, // lea rsi, [rip+20] (action)
			0x31, 0xd2, // xor edx, edx
			0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
			0x0f, 0x05, // syscall
			0xb8, 34, 0, 0, 0, // loop: mov eax, SYS_pause
			0x0f, 0x05, // syscall
			0xeb, 0xf7, // jmp loop
			0x90, // nop
		}
	case "arm64":
		machine = host.MachineARM64
		movz := func(reg, imm uint32) []byte { return le.AppendUint32(nil, 0xd2800000|imm<<5|reg) }
		word := func(w uint32) []byte { return le.AppendUint32(nil, w) }
		for _, part := range [][]byte{
			movz(8, 134),                 // rt_sigaction
			movz(0, 17),                  // SIGCHLD
			word(0x10000000 | 12<<5 | 1), // adr x1, +48 (action)
			movz(2, 0), movz(3, 8),
			word(0xd4000001), // svc #0
			movz(8, 73),      // loop: ppoll(0, 0, 0, 0, 0)
			movz(0, 0), movz(1, 0), movz(2, 0), movz(3, 0),
			word(0xd4000001),
			word(0x14000000 | (-6 & 0x3ffffff)), // b loop
			word(0xd503201f),                    // nop
		} {
			code = append(code, part...)
		}
	default:
		return nil, fmt.Errorf("cannot make the guest's init: no code for %s", arch)
	}
	action := make([]byte, 32)
	action[0] = 1 // sa_handler = SIG_IGN
	return host.TinyELF(machine, append(code, action...)), nil
}

package janitor

import "github.com/sunaba-dev/sunaba/internal/host"

// Waiter returns what a janitor is until it is needed, as a static program of
// two hundred bytes, or nil for an architecture that it was not written for. It
// waits for a byte on its standard input and then ends; at the end of input it
// executes the program on descriptor 3, with its own arguments, which is then a
// janitor. Nearly every janitor is dismissed, and a Go program costs a
// millisecond and a half before it can wait.
func Waiter(arch string) []byte {
	if arch != "amd64" {
		return nil
	}
	code := []byte{
		0x48, 0x83, 0xec, 16, // sub rsp, 16
		0x31, 0xc0, // xor eax, eax: SYS_read
		0x31, 0xff, // xor edi, edi
		0x48, 0x89, 0xe6, // mov rsi, rsp
		0xba, 1, 0, 0, 0, // mov edx, 1
		0x0f, 0x05, // syscall
		0x83, 0xf8, 1, // cmp eax, 1
		0x75, 9, // jne execute
		0x31, 0xff, // xor edi, edi
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0x0f, 0x05, // syscall
		0xb8, 59, 0, 0, 0, // execute: mov eax, SYS_execve
		0x48, 0x8d, 0x3d, 21, 0, 0, 0, // lea rdi, [rip+21] (path)
		0x48, 0x8d, 0x74, 0x24, 24, // lea rsi, [rsp+24]: argv, as it is
		0x31, 0xd2, // xor edx, edx: no environment
		0x0f, 0x05, // syscall
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0xbf, 127, 0, 0, 0, // mov edi, 127
		0x0f, 0x05, // syscall
	}
	return host.TinyELF(host.MachineAMD64, append(code, "/proc/self/fd/3\x00"...))
}

package host

import "encoding/binary"

// Machines of TinyELF: e_machine of elf(5).
const (
	MachineAMD64 = 62
	MachineARM64 = 183
)

// TinyELF returns a static program that consists of the given machine code,
// which is entered at its first byte and may read what follows it but not write
// to it. It is for a process that does two or three system calls: a program
// that a compiler made costs a millisecond before its first instruction.
func TinyELF(machine uint16, code []byte) []byte {
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	le := binary.LittleEndian
	out := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	out = le.AppendUint16(out, 2) // ET_EXEC
	out = le.AppendUint16(out, machine)
	out = le.AppendUint32(out, 1)
	out = le.AppendUint64(out, base+headers) // entry
	out = le.AppendUint64(out, 64)           // program headers
	out = le.AppendUint64(out, 0)
	out = le.AppendUint32(out, 0)
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		out = le.AppendUint16(out, v)
	}
	out = le.AppendUint32(out, 1) // PT_LOAD
	out = le.AppendUint32(out, 5) // R+X
	for _, v := range []uint64{0, base, base, size, size, 0x1000} {
		out = le.AppendUint64(out, v)
	}
	return append(out, code...)
}

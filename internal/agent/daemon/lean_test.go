package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestWhatCanBeWrittenIsNeverGivenBackAndCodeNotWhereItIsKept(t *testing.T) {
	const maps = `00400000-00abc000 r-xp 00000000 00:1b 7 /.sunaba/sunaba-agentd
00abc000-01000000 r--p 006bc000 00:1b 7 /.sunaba/sunaba-agentd
01000000-01040000 rw-p 00c00000 00:1b 7 /.sunaba/sunaba-agentd
01040000-01070000 r--p 00000000 00:00 0
02000000-02001000 r--s 00000000 00:05 9 /dev/shm/of-others
c000000000-c000400000 rw-p 00000000 00:00 0
7fff00000000-7fff00002000 r-xp 00000000 00:00 0 [vdso]
`
	code, data := memoryRange{0x400000, 0xabc000}, memoryRange{0xabc000, 0x1000000}
	if got := ofFile(maps, false); !slices.Equal(got, []memoryRange{code, data}) {
		t.Errorf("%x", got)
	}
	if got := ofFile(maps, true); !slices.Equal(got, []memoryRange{data}) {
		t.Errorf("where code is kept: %x", got)
	}
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if all := ofFile(string(own), true); len(all) == 0 {
		t.Errorf("nothing of this program is data: %s", strings.Split(string(own), "\n")[:3])
	}
	giveBack(false)
	giveBack(true)
}

package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
)

// spew answers lines: "down N" with N bytes, "up N" with a line after N bytes, "ping"
// with a byte.
func spew(c net.Conn) {
	in := bufio.NewReaderSize(c, 256<<10)
	zero := make([]byte, 256<<10)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var n int64
		switch {
		case line == "ping\n":
			_, err = c.Write(zero[:1])
		case scan(line, "down %d\n", &n):
			for n > 0 && err == nil {
				m := min(n, int64(len(zero)))
				_, err = c.Write(zero[:m])
				n -= m
			}
		case scan(line, "up %d\n", &n):
			if _, err = io.CopyN(io.Discard, in, n); err == nil {
				_, err = io.WriteString(c, "ok")
			}
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

func scan(line, format string, n *int64) bool {
	_, err := fmt.Sscanf(line, format, n)
	return err == nil
}

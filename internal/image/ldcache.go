package image

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// ldCache is what /etc/ld.so.cache says: the file that ldconfig of the GNU C
// library writes and the dynamic loader searches (glibc sysdeps/generic/
// dl-cache.h, struct cache_file_new, in the host's byte order).
type ldCache struct {
	flags byte
	libs  []ldLib
}

type ldLib struct {
	flags     uint32 // kind and architecture of the library
	osVersion uint32
	hwcap     uint64
	name      string // as in DT_NEEDED: libc.so.6
	path      string
}

const (
	ldMagic     = "glibc-ld.so.cache1.1"
	ldHeader    = 48
	ldEntrySize = 24
	// ldExtension marks an entry for a subfolder of glibc-hwcaps; what its
	// hwcap means is said in an extension that we do not carry over.
	ldExtension = 1 << 62
)

func parseLdCache(b []byte) (*ldCache, error) {
	bad := errors.New("cannot read ld.so.cache: it is not in the format of glibc 2.2 and later")
	// Before 2.32 the old format came first and embedded this one.
	start := bytes.Index(b, []byte(ldMagic))
	if start < 0 || len(b)-start < ldHeader {
		return nil, bad
	}
	b = b[start:]
	le := binary.LittleEndian
	count := uint64(le.Uint32(b[20:]))
	if ldHeader+count*ldEntrySize > uint64(len(b)) {
		return nil, bad
	}
	text := func(off uint32) (string, bool) {
		if uint64(off) >= uint64(len(b)) {
			return "", false
		}
		s, _, ok := bytes.Cut(b[off:], []byte{0})
		return string(s), ok
	}
	c := &ldCache{flags: b[28]}
	for e := b[ldHeader : ldHeader+count*ldEntrySize]; len(e) > 0; e = e[ldEntrySize:] {
		name, ok1 := text(le.Uint32(e[4:]))
		file, ok2 := text(le.Uint32(e[8:]))
		if !ok1 || !ok2 {
			return nil, bad
		}
		c.libs = append(c.libs, ldLib{le.Uint32(e), le.Uint32(e[12:]), le.Uint64(e[16:]), name, file})
	}
	return c, nil
}

// filter returns a cache with the libraries whose path keep accepts, in the
// same order, which the loader's search relies on.
func (c *ldCache) filter(keep func(path string) bool) *ldCache {
	out := &ldCache{flags: c.flags}
	for _, l := range c.libs {
		if l.hwcap&ldExtension == 0 && keep(l.path) {
			out.libs = append(out.libs, l)
		}
	}
	return out
}

func (c *ldCache) bytes() []byte {
	le := binary.LittleEndian
	out := make([]byte, ldHeader+len(c.libs)*ldEntrySize)
	copy(out, ldMagic)
	le.PutUint32(out[20:], uint32(len(c.libs)))
	out[28] = c.flags
	start := len(out)
	for i, l := range c.libs {
		e := out[ldHeader+i*ldEntrySize:]
		le.PutUint32(e[0:], l.flags)
		le.PutUint32(e[4:], uint32(len(out)))
		le.PutUint32(e[8:], uint32(len(out)+len(l.name)+1))
		le.PutUint32(e[12:], l.osVersion)
		le.PutUint64(e[16:], l.hwcap)
		out = append(append(out, l.name...), 0)
		out = append(append(out, l.path...), 0)
	}
	le.PutUint32(out[24:], uint32(len(out)-start))
	return out
}

// paths returns the files that are cached for a library name.
func (c *ldCache) paths(name string) (paths []string) {
	for _, l := range c.libs {
		if l.name == name && l.hwcap&ldExtension == 0 {
			paths = append(paths, l.path)
		}
	}
	return paths
}

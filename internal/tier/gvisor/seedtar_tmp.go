package gvisor

import (
	"archive/tar"
	"io"
	"strings"

	"github.com/sunaba-dev/sunaba/box"
)

func buildSeedTar(w io.Writer, seeds []box.Seed, uid, gid int, _ []string) (any, error) {
	tw := tar.NewWriter(w)
	for _, s := range seeds {
		tw.WriteHeader(&tar.Header{Name: "./" + strings.TrimPrefix(s.Path, "/"), Mode: int64(s.Mode), Size: s.Size, Uid: uid, Gid: gid, Typeflag: tar.TypeReg})
		r, err := s.Open()
		if err != nil {
			return nil, err
		}
		io.Copy(tw, r)
		r.Close()
	}
	return nil, tw.Close()
}

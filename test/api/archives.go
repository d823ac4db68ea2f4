package api

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
)

// archive makes a tar archive from a description: members with commas between
// them, each NAME=CONTENT for a file, NAME/ for a folder, NAME->TARGET for a
// symbolic link, NAME=>TARGET for a hard one, NAME|fifo, NAME|device, and
// NAME#SIZE for the head of a file of which nothing comes.
func archive(description string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for m := range strings.SplitSeq(description, ",") {
		h := &tar.Header{Mode: 0o6755, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		content, short := "", false
		if name, to, ok := strings.Cut(m, "->"); ok {
			h.Name, h.Typeflag, h.Linkname = name, tar.TypeSymlink, to
		} else if name, to, ok := strings.Cut(m, "=>"); ok {
			h.Name, h.Typeflag, h.Linkname = name, tar.TypeLink, to
		} else if name, ok := strings.CutSuffix(m, "|fifo"); ok {
			h.Name, h.Typeflag = name, tar.TypeFifo
		} else if name, ok := strings.CutSuffix(m, "|device"); ok {
			h.Name, h.Typeflag, h.Devmajor, h.Devminor = name, tar.TypeChar, 1, 3
		} else if name, size, ok := strings.Cut(m, "#"); ok {
			h.Name, short = name, true
			if _, err := fmt.Sscan(size, &h.Size); err != nil {
				return nil, err
			}
		} else if name, text, ok := strings.Cut(m, "="); ok {
			h.Name, content, h.Size = name, text, int64(len(text))
		} else if strings.HasSuffix(m, "/") {
			h.Name, h.Typeflag = m, tar.TypeDir
		} else {
			return nil, fmt.Errorf("cannot make %q", m)
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if short {
			return buf.Bytes(), nil
		}
		if _, err := w.Write([]byte(content)); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

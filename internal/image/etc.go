package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// etcKind says how a line of etcFiles is copied.
type etcKind int

const (
	// etcCopy copies regular files, and links that lead below /usr. A folder
	// is copied with what is below it.
	etcCopy etcKind = iota
	// etcLinks copies only the links of a folder that lead below /usr.
	etcLinks
	// etcFollow copies what a link leads to, for bundles of public
	// certificates that distributions keep in different places.
	etcFollow
)

type etcFile struct {
	pattern string // as in path/filepath.Match
	kind    etcKind
	why     string
	host    bool // only with the host's /usr: it describes more than base has
}

// etcFiles is everything of the host's /etc that a box may see. Whatever is
// not here is not copied; of what is here, a file is copied only if everybody
// on the host may read it, it has at most etcMax bytes, and it holds no private
// key. Settings that often carry passwords or tokens are left out on purpose:
// environment, profile, profile.d, gitconfig, npmrc, pip.conf, wgetrc, maven's
// settings.xml, R's Renviron.
func etcFiles() []etcFile {
	return []etcFile{
		{"/etc/alternatives", etcLinks, "commands in /usr/bin such as awk and editor are links through it", false},
		{"/etc/ld.so.cache", etcCopy, "the dynamic loader finds libraries outside its built-in folders by it", true},
		{"/etc/ld.so.conf", etcCopy, "source of ld.so.cache, for ldconfig", false},
		{"/etc/ld.so.conf.d", etcCopy, "source of ld.so.cache, for ldconfig", false},
		{"/etc/os-release", etcCopy, "programs ask it for the distribution", false},
		{"/etc/debian_version", etcCopy, "programs ask it for the distribution", false},
		{"/etc/mime.types", etcCopy, "python's mimetypes and web servers read it", false},
		{"/etc/protocols", etcCopy, "getprotobyname", false},
		{"/etc/services", etcCopy, "getservbyname", false},
		{"/etc/locale.alias", etcCopy, "/usr/share/locale/locale.alias leads here", false},
		{"/etc/inputrc", etcCopy, "key bindings of interactive shells", false},
		{"/etc/python3*", etcCopy, "sitecustomize.py in /usr/lib/python3.* leads here", false},
		{"/etc/matplotlibrc", etcCopy, "Debian's matplotlib cannot be imported without it", true},
		{"/etc/perl", etcCopy, "it is in perl's @INC", false},
		{"/etc/fonts", etcCopy, "fontconfig does not work without it", true},
		{"/etc/java-*-openjdk", etcCopy, "the JDK's conf and lib/jvm.cfg lead here; java does not start without", true},
		{"/etc/maven/m2.conf", etcCopy, "mvn does not start without it", true},
		{"/etc/R/ldpaths", etcCopy, "R does not start without it", true},
		{"/etc/R/Makeconf", etcCopy, "R compiles packages by it", true},
		{"/etc/ssl/openssl.cnf", etcCopy, "/usr/lib/ssl/openssl.cnf leads here", false},
		{"/etc/ssl/certs/ca-certificates.crt", etcFollow, "public certificate authorities: Debian, Arch, Alpine", false},
		{"/etc/ssl/certs/java/cacerts", etcFollow, "the same for the JDK", true},
		{"/etc/ssl/cert.pem", etcFollow, "the same: Alpine", false},
		{"/etc/pki/tls/certs/ca-bundle.crt", etcFollow, "the same: Fedora", false},
		{"/etc/ssl/ca-bundle.pem", etcFollow, "the same: openSUSE", false},
	}
}

const (
	etcMax   = 4 << 20 // bytes of one file
	etcDepth = 6       // folders below one line
)

// addEtc adds the allowed files of root+"/etc" to t. root is empty except in
// tests.
func (t *tree) addEtc(root string, withUsr bool) error {
	for _, item := range etcFiles() {
		if item.host && !withUsr {
			continue
		}
		t.look(root + path.Dir(item.pattern))
		names, err := filepath.Glob(root + item.pattern)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", item.pattern, err)
		}
		for _, name := range names {
			info, err := os.Lstat(name)
			if err != nil {
				continue // gone meanwhile
			}
			if err := t.addEtcPath(root, strings.TrimPrefix(name, root), info.Mode().Type(), item.kind, etcDepth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tree) addEtcPath(root, name string, mode fs.FileMode, kind etcKind, depth int) error {
	switch {
	case mode.IsDir():
		t.look(root + name) // its links are looked at with it
		names, err := os.ReadDir(root + name)
		if err != nil || depth == 0 {
			return nil // not for everybody, or not what the line is meant for
		}
		t.dir(name, 0o755, 0)
		for _, n := range names {
			if err := t.addEtcPath(root, path.Join(name, n.Name()), n.Type(), kind, depth-1); err != nil {
				return err
			}
		}
	case mode == fs.ModeSymlink && kind != etcFollow:
		if strings.HasSuffix(name, ".gz") {
			return nil // half of the alternatives are manual pages
		}
		to, err := os.Readlink(root + name)
		if err == nil && below(absLink(name, to), "/usr") {
			return t.link(name, to)
		}
	case kind != etcLinks:
		t.look(root + name)
		if b, ok := publicFile(root + name); ok {
			return t.file(name, 0o644, b)
		}
	}
	return nil
}

// publicFile reads a file that may be shown to anybody.
func publicFile(name string) ([]byte, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 || info.Size() > etcMax {
		return nil, false
	}
	b, err := os.ReadFile(name)
	if err != nil || bytes.Contains(b, []byte("PRIVATE KEY-----")) {
		return nil, false
	}
	return b, true
}

// absLink returns the absolute, clean path that a link at name points to.
func absLink(name, to string) string {
	if path.IsAbs(to) {
		return path.Clean(to)
	}
	return path.Join(path.Dir(name), to)
}

// below reports whether the clean path p is dir or lies below it.
func below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

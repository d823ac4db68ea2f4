package image

// DefaultPackages are the packages of the base image on a host with dpkg. What
// they depend on comes with them; those that are not installed are left out.
func DefaultPackages() []string {
	return []string{
		// What Debian calls essential, so nothing declares that it needs it.
		"base-files", "bash", "bsdutils", "coreutils", "dash", "debianutils", "diffutils", "findutils", "grep", "gzip",
		"hostname", "libc-bin", "ncurses-base", "ncurses-bin", "perl-base", "sed", "tar", "util-linux",
		// What scripts expect.
		"bzip2", "file", "gawk", "less", "mawk", "patch", "procps", "tzdata", "unzip", "xz-utils", "zip",
		// Languages and tools.
		"python3", "python3-venv", "python3-numpy", "nodejs", "perl", "git", "gcc", "g++", "libc6-dev", "make", "jq", "sqlite3",
		// The network, where there is one.
		"ca-certificates", "curl", "netbase",
	}
}

// DefaultPaths are the files and folders of the base image on a host without
// dpkg. Shared libraries that programs need come with them; modules that a
// language loads by itself must be listed. Those that are not there are left
// out.
func DefaultPaths() []string {
	paths := []string{
		"/usr/lib/os-release", "/usr/lib/locale/C.utf8", "/usr/share/zoneinfo", "/usr/share/terminfo", "/usr/lib/terminfo",
		"/usr/lib/python3*", "/usr/lib64/python3*",
		"/usr/lib/perl5", "/usr/lib64/perl5", "/usr/share/perl5",
		"/usr/lib/node_modules", "/usr/share/nodejs",
		"/usr/lib/git-core", "/usr/libexec/git-core", "/usr/share/git-core",
		"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib64/gcc", "/usr/include",
		"/usr/lib*/crt*.o", "/usr/lib*/libc.so", "/usr/lib*/libm.so", "/usr/lib*/libc_nonshared.a", "/usr/lib*/libgcc_s.so*",
		"/usr/share/misc/magic.mgc", "/usr/share/file", "/usr/share/awk", "/usr/share/pki/ca-trust-source",
	}
	for _, name := range []string{
		"sh", "bash", "env", "ls", "cat", "cp", "mv", "rm", "ln", "mkdir", "rmdir", "chmod", "chown", "touch", "mktemp", "stat", "du", "df", "dd",
		"echo", "printf", "true", "false", "test", "[", "expr", "seq", "sleep", "timeout", "date", "id", "whoami", "uname", "nproc", "pwd", "tty",
		"basename", "dirname", "readlink", "realpath", "head", "tail", "wc", "sort", "uniq", "cut", "tr", "tee", "paste", "join", "split", "od",
		"md5sum", "sha1sum", "sha256sum", "sha512sum", "base64", "yes", "xargs", "find", "grep", "egrep", "fgrep", "sed", "awk", "gawk", "mawk",
		"tar", "gzip", "gunzip", "zcat", "xz", "unxz", "bzip2", "zip", "unzip", "diff", "cmp", "patch", "ps", "top", "free", "kill", "pgrep", "pkill",
		"busybox", "coreutils", "which", "file", "less", "more", "jq", "sqlite3", "curl", "git", "make", "perl",
		"python3", "python3.*", "node", "npm", "npx", "gcc", "g++", "cc", "c++", "cpp", "as", "ld", "ld.bfd", "ar", "nm", "ranlib", "strip", "objdump",
	} {
		paths = append(paths, "/usr/bin/"+name, "/bin/"+name)
	}
	return paths
}

package policy

import "strings"

// Refused is a host path that is never shown in a box, whatever name asks for
// it.
type Refused struct {
	Path string // absolute and clean; it need not exist
	Why  string // completes "refused: it is ..."
	// Whole limits the refusal to the path itself: what lies below it may be
	// shown. Otherwise the path and all below it are refused. What lies above
	// is refused either way, because showing it would show the path.
	Whole bool
	// Write limits the refusal to read-write mounts.
	Write bool
}

// RefusedSources lists the host paths that are refused by name. It is data, so
// that whoever opens a mount source can compare it, link resolved, by device
// and inode with the same names: a link, a bind mount or a hard link is only
// another name.
//
// The list errs on the side of refusing. An engine's socket is root on the
// host for whoever can write to it; most sockets lie below /run, which is
// refused whole, and are named again for the comparison by inode.
func RefusedSources() []Refused {
	const (
		engine = "a control socket or store of a container engine"
		system = "a control interface of the host"
		keys   = "a store of keys or passwords"
		boot   = "code that the host runs"
	)
	return []Refused{
		{Path: "/", Why: "the whole host", Whole: true},
		{Path: "/proc", Why: system},
		{Path: "/sys", Why: system},
		{Path: "/dev", Why: system},
		{Path: "/boot", Why: "the host's kernel"},
		{Path: "/run", Why: "the folder of the host's control sockets"},
		{Path: "/var/run", Why: "the folder of the host's control sockets"},

		{Path: "/run/docker.sock", Why: engine},
		{Path: "/var/run/docker.sock", Why: engine},
		{Path: "/run/docker", Why: engine},
		{Path: "/run/containerd", Why: engine},
		{Path: "/run/containerd/containerd.sock", Why: engine},
		{Path: "/run/k3s/containerd/containerd.sock", Why: engine},
		{Path: "/run/podman", Why: engine},
		{Path: "/run/podman/podman.sock", Why: engine},
		{Path: "/run/crio", Why: engine},
		{Path: "/run/crio/crio.sock", Why: engine},
		{Path: "/run/cri-dockerd.sock", Why: engine},
		{Path: "/run/buildkit/buildkitd.sock", Why: engine},
		{Path: "/run/libvirt/libvirt-sock", Why: engine},
		{Path: "/run/lxd.socket", Why: engine},
		{Path: "/var/lib/lxd/unix.socket", Why: engine},
		{Path: "/var/snap/lxd/common/lxd/unix.socket", Why: engine},
		{Path: "/run/snapd.socket", Why: system},
		{Path: "/run/systemd/private", Why: system},
		{Path: "/run/dbus/system_bus_socket", Why: system},
		{Path: "/var/lib/docker", Why: engine},
		{Path: "/var/lib/containerd", Why: engine},
		{Path: "/var/lib/containers", Why: engine},
		{Path: "/var/lib/kubelet", Why: "the store of a Kubernetes node, its tokens included"},
		{Path: "/var/lib/rancher", Why: "the store of a Kubernetes node, its tokens included"},

		{Path: "/etc", Why: "the host's whole configuration", Whole: true},
		{Path: "/etc/shadow", Why: keys},
		{Path: "/etc/shadow-", Why: keys},
		{Path: "/etc/gshadow", Why: keys},
		{Path: "/etc/gshadow-", Why: keys},
		{Path: "/etc/ssh", Why: keys},
		{Path: "/etc/ssl/private", Why: keys},
		{Path: "/etc/krb5.keytab", Why: keys},
		{Path: "/etc/kubernetes", Why: keys},
		{Path: "/etc/rancher", Why: keys},
		{Path: "/home", Why: "the folder of all home folders", Whole: true},
		{Path: "/root", Why: "root's whole home folder", Whole: true},
		{Path: "/root/.ssh", Why: keys},

		// Read-only these are harmless; who may write them runs code outside.
		{Path: "/etc", Why: boot, Write: true},
		{Path: "/usr", Why: boot, Write: true},
		{Path: "/bin", Why: boot, Write: true},
		{Path: "/sbin", Why: boot, Write: true},
		{Path: "/lib", Why: boot, Write: true},
		{Path: "/lib32", Why: boot, Write: true},
		{Path: "/lib64", Why: boot, Write: true},
		{Path: "/var/spool", Why: boot, Write: true},
		{Path: "/var/lib", Why: boot, Write: true},
	}
}

// RefusedName is a file or folder that is refused wherever it lies.
type RefusedName struct {
	Name string // one component, or several joined by "/"
	Why  string
}

// RefusedNames lists the names under which programs keep keys in a home
// folder. A source is refused if these components occur in it in this order,
// and if it ends with the first of several, because it would show the rest.
func RefusedNames() []RefusedName {
	const keys = "a place where programs keep keys"
	var out []RefusedName
	for _, n := range strings.Fields(`
		.ssh .gnupg .aws .azure .kube .docker .oci .netrc .git-credentials
		.config/gcloud .config/gh .config/git/credentials .config/containers/auth.json
		.config/op .config/rclone .config/google-chrome .config/chromium
		.local/share/keyrings .password-store .mozilla
		.npmrc .pypirc .pgpass .my.cnf .s3cfg .boto .vault-token .terraform.d
		.cargo/credentials .cargo/credentials.toml .gem/credentials`) {
		out = append(out, RefusedName{Name: n, Why: keys})
	}
	return out
}

// HomeSigns lists the names that show a folder to be somebody's home: a source
// that has one of them directly in it is refused, wherever it lies. Names that
// projects have too, such as .npmrc, are not among them.
func HomeSigns() []string {
	return []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".git-credentials", ".password-store", ".local/share/keyrings", ".config/gcloud", ".mozilla"}
}

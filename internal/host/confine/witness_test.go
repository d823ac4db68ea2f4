package confine

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// task is what a witness tries, and how it confines itself before.
type task struct {
	Options  *Options // nil: not at all
	Program  []string // instead of the witness
	Env      int      // number of variables of 100 KiB each
	Read     []string
	Write    []string // files to make
	Kill     []int    // signal 0
	Connect  []string // abstract sockets
	Dup      []int    // descriptors for the program to inherit by mistake
	Describe bool     // Facts.Status and the like
}

// facts is what a witness saw.
type facts struct {
	Applied *Applied // as told by Exec, on the way
	Tried   map[string]unix.Errno
	Status  map[string]string // of /proc/self/status
	FDs     []string
	Mode    string // of a file made with 0666
	Secure  int
}

// become confines this process and turns it into the witness, or a program.
func become(arg []byte) error {
	var t task
	if err := json.Unmarshal(arg, &t); err != nil {
		return err
	}
	argv := t.Program
	if argv == nil {
		argv = []string{self, inside, "witness", string(arg)}
	}
	env := slices.Repeat([]string{"X=" + strings.Repeat("x", 100<<10)}, t.Env)
	if t.Options == nil {
		return syscall.Exec(argv[0], argv, env)
	}
	for _, fd := range t.Dup {
		if err := unix.Dup2(1, fd); err != nil {
			return err
		}
	}
	return Exec(*t.Options, argv[0], argv, env, func(a Applied) error {
		if t.Program != nil {
			return nil
		}
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		_, err = fmt.Println(string(b))
		return err
	})
}

func witness(arg []byte) error {
	var t task
	if err := json.Unmarshal(arg, &t); err != nil {
		return err
	}
	f := facts{Tried: map[string]unix.Errno{}}
	for _, p := range t.Read {
		f.Tried["read "+p] = try(p, unix.O_RDONLY)
	}
	for _, p := range t.Write {
		f.Tried["write "+p] = try(p, unix.O_WRONLY|unix.O_CREAT)
	}
	for _, pid := range t.Kill {
		_, _, f.Tried[fmt.Sprint("kill ", pid)] = unix.RawSyscall(unix.SYS_KILL, uintptr(pid), 0, 0)
	}
	for _, name := range t.Connect {
		c, err := net.Dial("unix", name)
		if err == nil {
			c.Close()
		}
		f.Tried["connect "+name] = number(err)
	}
	if t.Describe {
		if err := f.describe(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

func try(path string, flags int) unix.Errno {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o666)
	if err == nil {
		unix.Close(fd)
	}
	return number(err)
}

func number(err error) unix.Errno {
	for ; err != nil; err = unwrap(err) {
		if e, ok := err.(unix.Errno); ok {
			return e
		}
	}
	return 0
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return unix.EBADMSG // an error without a number
}

func (f *facts) describe() error {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	f.Status = map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(line, ":")
		f.Status[k] = strings.TrimSpace(v)
	}
	fds, err := inherited() // those of the Go runtime close on exec
	if err != nil {
		return err
	}
	f.FDs = strings.Fields(strings.Trim(fmt.Sprint(fds), "[]"))
	f.Secure, err = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	return err
}

// starter confines one thread and starts two processes from it: a victim, and a
// witness that tries to signal it and somebody outside.
func starter(arg []byte) error {
	var outside int
	if err := json.Unmarshal(arg, &outside); err != nil {
		return err
	}
	d := Domain{ReadOnly: append(systemFolders(), self), Devices: []string{"/dev"}}
	if _, err := Thread(d); err != nil {
		return err
	}
	v := command("victim", nil)
	stdin, err := v.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := v.StdoutPipe()
	if err != nil {
		return err
	}
	if err := v.Start(); err != nil {
		return err
	}
	if _, err := stdout.Read(make([]byte, 2)); err != nil {
		return err
	}
	w := command("become", task{Options: &Options{Confined: true}, Kill: []int{v.Process.Pid, outside}, Describe: true})
	out, err := w.CombinedOutput()
	fmt.Print(strings.ReplaceAll(string(out), fmt.Sprint("kill ", v.Process.Pid), "kill victim"))
	stdin.Close()
	_ = v.Wait()
	return err
}

// keys makes a session keyring with a key in it and looks for the key from two
// children, of which one has entered a domain.
func keys(arg []byte) error {
	const name = "sunaba-test-key"
	if string(arg) != `""` {
		return lookForKey(name, string(arg) == `"enter"`)
	}
	runtime.LockOSThread()
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil {
		return err
	}
	if _, err := unix.AddKey("user", name, []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		return err
	}
	for _, how := range []string{"stay", "enter"} {
		out, err := command("keys", how).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		fmt.Printf("%s: %s\n", how, out)
	}
	return nil
}

func lookForKey(name string, enter bool) error {
	runtime.LockOSThread()
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", name, 0)
	if err != nil {
		return fmt.Errorf("cannot find the key before: %w", err)
	}
	if enter {
		if err := (Domain{}).enter(&Applied{}); err != nil {
			return err
		}
	}
	_, search := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", name, 0)
	_, read := unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 64), 0)
	fmt.Printf("search %v, read %v", search, read)
	return nil
}

// dropAndShow drops the rights of all threads and shows those of each, and of a
// child.
func dropAndShow([]byte) error {
	if err := DropRights(); err != nil {
		return err
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		if err := showRights("/proc/self/task/" + t.Name() + "/status"); err != nil {
			return err
		}
	}
	cmd := exec.Command("/bin/cat", "/proc/self/status")
	cmd.Env = []string{}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return printRights(out)
}

func showRights(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return printRights(text)
}

func printRights(status []byte) error {
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
			fmt.Print(line)
		}
	}
	return nil
}

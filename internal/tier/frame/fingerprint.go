package frame

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"

	"github.com/sunaba-dev/sunaba/box"
)

// Fingerprint makes the text of box.Fingerprinter of what a tier saw, and of what
// is the same for all: limits, namespaces and mounts.
func (b *Box) Fingerprint(processes, written string) (string, error) {
	walls, err := b.walls()
	if err == nil {
		select {
		case <-b.Child.Done(): // then all of it may be another's
			err = errors.New("it has ended")
		default:
		}
	}
	if err != nil {
		return "", box.Errorf(box.Unavailable, "look at box", "cannot look at box %s: %w", b.Spec.ID, err)
	}
	return "processes=" + short(processes) + " written=" + written + " " + walls, nil
}

// walls are the limits of the box's group, and the namespaces and mounts of its
// first process.
func (b *Box) walls() (string, error) {
	limits := "none"
	if b.Group != nil {
		l, err := b.Group.Now()
		if err != nil {
			return "", err
		}
		limits = fmt.Sprintf("%d,%d,%d", l.Memory, l.MilliCPU, l.Pids)
	}
	proc := fmt.Sprintf("/proc/%d/", b.Child.Pid())
	var spaces string
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		name, err := os.Readlink(proc + "ns/" + kind)
		if err != nil {
			return "", fmt.Errorf("cannot read its namespaces: %w", err)
		}
		spaces += name
	}
	mounts, err := os.ReadFile(proc + "mountinfo")
	if err != nil {
		return "", fmt.Errorf("cannot read its mounts: %w", err)
	}
	return "limits=" + limits + " namespaces=" + short(spaces) + " mounts=" + short(string(mounts)), nil
}

// short is a text in 16 digits.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:8])
}

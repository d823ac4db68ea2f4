package frame

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/fault"
	"github.com/sunaba-dev/sunaba/internal/host"
)

// A box that lasts has a folder of its own, which is the front's: in it is the
// socket at which its first process listens, the name of that process, and the
// run folder, which is the box's user's. Nobody but the front's user can connect,
// and nothing of it is visible in the box.
const (
	linkName  = "link"
	firstName = "first"
	runName   = "run"
)

// LastingDir holds one folder for each box that lasts.
func (s *Site) LastingDir() string { return s.State + "/boxes" }

func (s *Site) homeOf(id box.ID) string { return filepath.Join(s.LastingDir(), string(id)) }

// beginLasting is Begin for a box that lasts. It has no janitor: it ends when it
// is destroyed, by whoever owns the site then.
func (b *Box) beginLasting() error {
	b.home = b.site.homeOf(b.Spec.ID)
	b.Dir = filepath.Join(b.home, runName)
	b.created = time.Now()
	for _, d := range []string{b.site.LastingDir(), b.home} {
		if err := os.Mkdir(d, 0o711); err != nil && !(os.IsExist(err) && d != b.home) {
			b.home = "" // it is another's
			return fmt.Errorf("cannot make folder of the box: %w", err)
		}
	}
	fault.Here("frame.home-made")
	uid, gid := b.site.HostUser(b.Spec.ID)
	lock, err := makeRunDir(b.Dir, uid, gid)
	if err == nil {
		lock.Close()
	}
	fault.Here("frame.begun")
	return err
}

// linkPair returns the front's end of the link and what the first process is
// started with: the other end, or in a box that lasts the socket at which this
// front waits already. Should the front end before the box is set up, the first
// process ends, too.
func (b *Box) linkPair() (*host.Link, *os.File, error) {
	if !b.Spec.Lasting {
		return host.LinkPair()
	}
	theirs, err := host.ListenAt(b.home, linkName)
	if err != nil {
		return nil, nil, err
	}
	fault.Here("frame.listening")
	link, err := host.DialAt(b.home, linkName)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return link, theirs, nil
}

// rememberFirst writes down who the first process is, before it is set up: for
// whoever has to end a box of which nothing else is known.
func (b *Box) rememberFirst() (err error) {
	if b.first, err = host.Identify(b.Child.Pid()); err != nil {
		return err
	}
	raw, err := json.Marshal(b.first)
	if err != nil {
		return fmt.Errorf("cannot encode the box's first process: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(b.home, firstName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(raw)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write down the box's first process: %w", err)
	}
	fault.Here("frame.remembered")
	return nil
}

// Stream asks the first process for a new byte stream to the box's agent. What
// comes is made sure of; what is said on it is the agent's.
func (b *Box) Stream(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ends, err := b.Conn.CallForFiles(ctx, 1, "agent", struct{}{}, nil)
	if err == nil {
		var c net.Conn
		if c, err = host.StreamConn(ends[0]); err == nil {
			return c, nil
		}
	}
	return nil, box.Errorf(box.Unavailable, "reach agent", "cannot reach the agent of box %s: %w", b.Spec.ID, err)
}

// Ended is of box.Lasting.
func (b *Box) Ended() <-chan struct{} { return b.Child.Done() }

// Detach is of box.Lasting.
func (b *Box) Detach() {
	b.dropVolumes()
	if b.Conn != nil {
		b.Conn.Close()
	}
	if b.Child != nil {
		b.Child.Release()
	}
	if b.Store != nil {
		b.Store.Close()
	}
}

// state is what Box.State returns of a box that lasts.
type state struct {
	Tier    box.TierName
	First   host.Identity
	Spec    wish
	Image   string
	Weak    []string
	Created time.Time
	Own     json.RawMessage // the tier's
}

// wish is a box.Spec without its seeds, which are in the box.
type wish struct {
	ID        box.ID
	Tenant    string
	Principal string
	Image     box.ImageName
	Workdir   string
	Limits    box.Limits
	Mounts    []box.Mount
	Volumes   []box.Volume `json:",omitempty"`
	NoMount   []string
	Net       box.Net
	Hostname  string
	Lasting   bool
}

func wishOf(s box.Spec) wish {
	return wish{s.ID, s.Tenant, s.Principal, s.Image, s.Workdir, s.Limits, s.Mounts, s.Volumes, s.NoMount, s.Net, s.Hostname, s.Lasting}
}

func (w wish) spec() box.Spec {
	return box.Spec{
		ID: w.ID, Tenant: w.Tenant, Principal: w.Principal, Image: w.Image, Workdir: w.Workdir, Limits: w.Limits,
		Mounts: w.Mounts, Volumes: w.Volumes, NoMount: w.NoMount, Net: w.Net, Hostname: w.Hostname, Lasting: w.Lasting,
	}
}

// Keep completes a box that lasts: what its State says from now on. It says
// nothing for other boxes. Own is what the tier needs.
func (b *Box) Keep(tier box.TierName, own any) error {
	if !b.Spec.Lasting {
		return nil
	}
	b.Conn.OnLimit(b.noteLimit)
	st := state{Tier: tier, First: b.first, Spec: wishOf(b.Spec), Image: b.Image, Weak: b.Weaker, Created: b.created}
	var err error
	if st.Own, err = json.Marshal(own); err == nil {
		b.state, err = json.Marshal(st)
	}
	if err != nil {
		return fmt.Errorf("cannot encode the box's state: %w", err)
	}
	return nil
}

package frame

import (
	"context"
	"os"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/files"
	"github.com/sunaba-dev/sunaba/internal/host"
	"github.com/sunaba-dev/sunaba/internal/image"
)

// Images says where root file systems come from.
type Images struct {
	Store *image.Store
	// Prefixes are further host folders that the host image shows read-only.
	Prefixes []string
	// Progress is told of long preparations; it may be nil.
	Progress func(done, total int64, what string)
}

// Open opens the root file system that spec asks for, verified, and gives the
// name that results show: with the digest for an image whose digest is fixed.
func (i Images) Open(ctx context.Context, spec box.Spec) (*image.Image, string, error) {
	if spec.Image == box.ImageBase {
		img, err := i.Store.Base(ctx, image.BaseOptions{}, i.Progress)
		if err != nil {
			return nil, "", err
		}
		return img, string(img.Name) + "@" + img.Digest, nil
	}
	var folders []string
	for _, v := range spec.Volumes {
		folders = append(folders, v.Target)
	}
	img, err := i.Store.Host(ctx, image.HostOptions{
		Workdir: spec.Workdir, Hostname: spec.Hostname, ExtraPrefixes: i.Prefixes, Mounts: spec.Mounts, Folders: folders,
	})
	if err != nil {
		return nil, "", err
	}
	return img, string(img.Name), nil
}

// SeedArchive writes the box's seeds and further folders of its user's into a
// file without a name, which is read-only and the caller's, and records them.
func (b *Box) SeedArchive(dirs ...string) (*os.File, error) {
	f, err := host.OpenUnlinked(b.site.StoreDir())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if b.Seeded, err = files.BuildSeedTar(f, b.Spec.Seeds, host.BoxUser, host.BoxUser, dirs); err != nil {
		return nil, err
	}
	return host.Seal(f)
}

package rest

import (
	"context"
	"time"

	"github.com/sunaba-dev/sunaba/box"
	"github.com/sunaba-dev/sunaba/internal/server"
)

// KeptVolume is what is known of one.
type KeptVolume struct {
	Name      string    `json:"name"`
	Bytes     int64     `json:"bytes" doc:"Its size: so much fits."`
	UsedBytes int64     `json:"used_bytes" doc:"Of the host's disk; -1 if that is not known."`
	Boxes     []box.ID  `json:"boxes" doc:"That have it now: one that may write, or any number that read."`
	CreatedAt time.Time `json:"created_at"`
}

func volumeOf(i box.VolumeInfo) KeptVolume {
	return KeptVolume{Name: i.Name, Bytes: i.Bytes, UsedBytes: i.Used, Boxes: list(i.Boxes), CreatedAt: i.Created.UTC()}
}

type volumeRequest struct {
	Body struct {
		Name  string `json:"name" minLength:"1" maxLength:"64" pattern:"^[a-z0-9][a-z0-9._-]*$"`
		Bytes int64  `json:"bytes" minimum:"1048576" maximum:"8796093022208" doc:"What fits; all of it is taken from the host's disk at once."`
	}
}

func (a *API) makeVolume(ctx context.Context, in *volumeRequest) (KeptVolume, error) {
	i, err := a.Service.CreateVolume(ctx, server.CallerOf(ctx), in.Body.Name, in.Body.Bytes)
	if err != nil {
		return KeptVolume{}, err
	}
	return volumeOf(i), nil
}

// VolumeList is all that a tenant has.
type VolumeList struct {
	Volumes []KeptVolume `json:"volumes"`
}

func (a *API) volumeList(ctx context.Context, _ *struct{}) (VolumeList, error) {
	all, err := a.Service.Volumes(ctx, server.CallerOf(ctx))
	if err != nil {
		return VolumeList{}, err
	}
	out := VolumeList{Volumes: []KeptVolume{}}
	for _, i := range all {
		out.Volumes = append(out.Volumes, volumeOf(i))
	}
	return out, nil
}

// VolumePath names a volume.
type VolumePath struct {
	Name string `path:"volume" maxLength:"128"`
}

func (a *API) volumeInfo(ctx context.Context, in *VolumePath) (KeptVolume, error) {
	i, err := a.Service.InspectVolume(ctx, server.CallerOf(ctx), in.Name)
	if err != nil {
		return KeptVolume{}, err
	}
	return volumeOf(i), nil
}

func (a *API) deleteVolume(ctx context.Context, in *VolumePath) error {
	return a.Service.DeleteVolume(ctx, server.CallerOf(ctx), in.Name)
}

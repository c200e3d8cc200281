package main

import (
	"strings"

	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// Walks the calls about cluster volumes. A stock engine that knows them needs a storage plugin from a registry.
func walkVolumes(api *client.Client) {
	asked := volume.CreateOptions{
		Name: "go-data", Driver: "hostpath", DriverOpts: map[string]string{"o": "1"}, Labels: map[string]string{"a": "b"},
		ClusterVolumeSpec: &volume.ClusterVolumeSpec{
			Group: "g",
			AccessMode: &volume.AccessMode{
				Scope: volume.ScopeMultiNode, Sharing: volume.SharingOneWriter,
				MountVolume: &volume.TypeMount{FsType: "ext4", MountFlags: []string{"ro"}},
			},
			AccessibilityRequirements: &volume.TopologyRequirement{
				Requisite: []volume.Topology{{Segments: map[string]string{"zone": "a"}}},
				Preferred: []volume.Topology{{Segments: map[string]string{"zone": "b"}}},
			},
			CapacityRange: &volume.CapacityRange{RequiredBytes: 1 << 20, LimitBytes: 1 << 30},
			Availability:  volume.AvailabilityPause,
		},
	}
	made, err := api.VolumeCreate(ctx, asked)
	need(err)
	show("create", made.Name, made.Driver, made.Options, made.Labels, made.Scope, *asked.ClusterVolumeSpec)
	show("created", strings.HasSuffix(made.CreatedAt, " +0000 UTC"), made.ClusterVolume.Spec)
	_, err = api.VolumeCreate(ctx, asked)
	failing("twice", err)
	_, err = api.VolumeCreate(ctx, volume.CreateOptions{Name: "go-none", ClusterVolumeSpec: &volume.ClusterVolumeSpec{}})
	failing("no driver", err)
	_, err = api.VolumeCreate(ctx, volume.CreateOptions{Name: "go-local"})
	failing("local", err)

	read, err := api.VolumeInspect(ctx, "go-data")
	need(err)
	byId, err := api.VolumeInspect(ctx, read.ClusterVolume.ID)
	need(err)
	show("inspect", byId.Name, read.ClusterVolume.Spec.Availability)
	list, err := api.VolumeList(ctx, volume.ListOptions{})
	need(err)
	show("list", len(list.Volumes), list.Volumes[0].Name)
	_, err = api.VolumeInspect(ctx, "go-absent")
	failing("absent", err)

	change := volume.UpdateOptions{Spec: &volume.ClusterVolumeSpec{Group: "other", Availability: volume.AvailabilityDrain}}
	need(api.VolumeUpdate(ctx, "go-data", read.ClusterVolume.Version, change))
	failing("out of sequence", api.VolumeUpdate(ctx, "go-data", read.ClusterVolume.Version, change))
	failing("update absent", api.VolumeUpdate(ctx, "go-absent", read.ClusterVolume.Version, change))
	drained, err := api.VolumeInspect(ctx, "go-data")
	need(err)
	show("drained", drained.ClusterVolume.Spec.Group, drained.ClusterVolume.Spec.Availability)

	need(api.VolumeRemove(ctx, "go-data", true))
	failing("remove absent", api.VolumeRemove(ctx, "go-data", false))
	need(api.VolumeRemove(ctx, "go-data", true))
}

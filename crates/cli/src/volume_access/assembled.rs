//! Volumes on partitions, md arrays and LVM volumes, whose layers are read in this process. For reading only.
//!
//! The layers are searched if a volume cannot be opened directly. The named disks are first; other disks nearby follow
//! if parts are missing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use rustix::io::Errno;
use ubtrfs::{BlockDevice, DeviceAccess};
use ubtrfs_assemble::{
    Assembly, Component, Contents, Disk, FoundVolume, Layer, LayerId, LayerKind, LeftOut,
    is_layered,
};
use ubtrfs_device::{FileDevice, nearby};

use crate::presentation::quoting::Escaped;
use crate::volume_access::reason::Reason;

/// The devices of a volume, with names for messages.
pub(crate) type Devices = Vec<(PathBuf, Arc<dyn BlockDevice>)>;

/// The disks to search for layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disks<'a> {
    pub(crate) named: &'a [PathBuf],
    /// The places of other disks. Without any, they are searched nearby.
    pub(crate) places: &'a [PathBuf],
    pub(crate) only_named: bool,
}

/// Returns whether layers can be the reason why a volume was not opened directly.
pub(crate) fn may_help(error: &anyhow::Error) -> bool {
    let of_library = error.downcast_ref::<Reason>().map(Reason::errno);
    let of_engine = error.downcast_ref().map(ubtrfs_fs::Error::errno);
    let errno = of_library.or(of_engine);
    errno.is_some_and(|errno| {
        // Missing files and rights, and devices in use.
        !matches!(
            errno,
            Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::BUSY
        )
    })
}

impl Disks<'_> {
    /// Finds the layers.
    pub(crate) fn assemble(&self) -> anyhow::Result<Assembly> {
        let mut disks = Vec::new();
        for path in self.named {
            let device = FileDevice::open(path, DeviceAccess::Read)?;
            disks.push(disk(path, device));
        }
        let assembly = Assembly::of(disks.clone());
        let is_complete =
            assembly.has_layers() && !assembly.layers().iter().any(Layer::is_degraded);
        let is_layered_disk =
            |layer: &Layer| matches!(layer.contents, Contents::Member | Contents::PhysicalVolume);
        let may_be_more = assembly.layers().iter().any(is_layered_disk);
        if self.only_named || is_complete || !may_be_more {
            return Ok(assembly);
        }
        let nearby = match self.places {
            [] => nearby(self.named),
            places => ubtrfs_device::files_at(places),
        };
        for path in nearby {
            // The others are of no concern to the user.
            if let Ok(device) = FileDevice::peek(&path)
                && is_layered(&device)
            {
                disks.push(disk(&path, device));
            }
        }
        let assembly = Assembly::of(disks);
        self.refuse_ambiguous(&assembly)?;
        Ok(assembly)
    }

    /// Returns the devices of the chosen volume, or of the only one, after opening directly has failed with `error`.
    pub(crate) fn devices_of(
        &self,
        choice: Option<&str>,
        access: DeviceAccess,
        error: anyhow::Error,
    ) -> anyhow::Result<Devices> {
        let assembly = self.assemble()?;
        let own: BTreeSet<LayerId> = assembly
            .iter()
            .map(|(id, _)| id)
            .filter(|&id| self.is_on_named(&assembly, id))
            .collect();
        let is_whole_disk = |id: &LayerId| assembly.layer(*id).kind == LayerKind::Disk;
        let volumes: Vec<FoundVolume> = assembly
            .volumes()
            .into_iter()
            .filter(|volume| volume.layers.iter().any(|id| own.contains(id)))
            .filter(|volume| !volume.layers.iter().all(is_whole_disk))
            .collect();
        let mut chosen = volumes.iter().filter(|volume| {
            choice.is_none_or(|choice| names(&assembly, volume).any(|name| name == choice))
        });
        match (chosen.next(), chosen.next()) {
            (Some(volume), None) => {
                let top = assembly.layer(volume.layers[0]);
                if access == DeviceAccess::Write {
                    bail!("read-only: {}", origin(top));
                }
                warn(&assembly, volume);
                Ok(assembly.devices(volume))
            }
            (Some(_), Some(_)) => {
                bail!(
                    "the disks hold several volumes: choose one with --volume: {}",
                    list(&assembly, &volumes)
                )
            }
            (None, _) if !volumes.is_empty() => {
                let list = list(&assembly, &volumes);
                bail!(
                    "the disks hold no volume '{}', but {list}",
                    choice.unwrap_or_default()
                )
            }
            // A writer has better reasons not to touch the device.
            (None, _) if access == DeviceAccess::Write => Err(error),
            (None, _) => match reasons(&assembly, &own) {
                reasons if reasons.is_empty() => Err(error),
                reasons => Err(error.context(reasons)),
            },
        }
    }

    /// Returns whether a layer uses a named disk.
    fn is_on_named(&self, assembly: &Assembly, id: LayerId) -> bool {
        // Named disks are the first layers.
        let below = assembly.closure(id);
        below.iter().any(|id| id.0 < self.named.len())
    }

    /// Refuses to guess between disks that were not named. A copy of a disk may be of an earlier time.
    fn refuse_ambiguous(&self, assembly: &Assembly) -> anyhow::Result<()> {
        for (id, layer) in assembly.iter() {
            for component in &layer.components {
                let Component::LeftOut(second, LeftOut::Duplicate { role }) = component else {
                    continue;
                };
                let Some(Component::Present(first)) = layer.components.get(*role) else {
                    continue;
                };
                let is_named = self.is_on_named(assembly, *first);
                if !is_named && self.is_on_named(assembly, id) {
                    bail!(
                        "'{}' and '{}' may both be member {role} of the array '{}': name the one that is meant",
                        shown(assembly.layer(*first)),
                        shown(assembly.layer(*second)),
                        shown(layer),
                    );
                }
            }
        }
        Ok(())
    }
}

fn disk(path: &Path, device: FileDevice) -> Disk {
    Disk {
        path: path.to_owned(),
        device: Arc::new(device),
    }
}

/// Returns the name of a layer for messages.
pub(crate) fn shown(layer: &Layer) -> String {
    Escaped(layer.name.as_bytes()).to_string()
}

/// Describes why a volume on a layer cannot be written.
fn origin(top: &Layer) -> &'static str {
    match top.kind {
        LayerKind::Disk => "assembled from several disks",
        LayerKind::Partition { .. } => "on a partition",
        LayerKind::Array { .. } => "assembled from members of md",
        LayerKind::LogicalVolume => "assembled from LVM volumes",
    }
}

/// Returns the names for the choice of a volume.
fn names(assembly: &Assembly, volume: &FoundVolume) -> impl Iterator<Item = String> {
    let layers = volume
        .layers
        .iter()
        .map(|&id| assembly.layer(id).name.clone());
    let own = [volume.fsid.to_string(), volume.label.clone()];
    let own = own.into_iter().filter(|name| !name.is_empty());
    own.chain(layers).collect::<Vec<_>>().into_iter()
}

fn list(assembly: &Assembly, volumes: &[FoundVolume]) -> String {
    let mut list = String::new();
    for volume in volumes {
        let separator = if list.is_empty() { "" } else { ", " };
        let name = shown(assembly.layer(volume.layers[0]));
        // Writing to a string succeeds.
        let _ = write!(list, "{separator}{} ({name})", volume.fsid);
    }
    list
}

/// Warns of missing parts and of notes.
fn warn(assembly: &Assembly, volume: &FoundVolume) {
    let layers: BTreeSet<LayerId> = volume
        .layers
        .iter()
        .flat_map(|&id| assembly.closure(id))
        .collect();
    for layer in layers.into_iter().map(|id| assembly.layer(id)) {
        for line in remarks(assembly, layer) {
            tracing::warn!("{} '{}': {line}", layer.kind, shown(layer));
        }
    }
}

/// Describes the parts of a layer that are missing or left out, and its notes.
fn remarks(assembly: &Assembly, layer: &Layer) -> Vec<String> {
    let parts = layer.components.iter().filter_map(|part| match part {
        Component::Present(_) => None,
        Component::Missing(part) => Some(format!("{part} is missing")),
        Component::LeftOut(_, LeftOut::Spare) => None,
        Component::LeftOut(id, reason) => {
            let name = shown(assembly.layer(*id));
            Some(format!("{name} is left out: {reason}"))
        }
    });
    let notes = layer.notes.iter().map(ToString::to_string);
    parts.chain(notes).collect()
}

/// Describes why none of the layers has a volume. Empty if all of them are readable.
fn reasons(assembly: &Assembly, own: &BTreeSet<LayerId>) -> String {
    let mut reasons = Vec::new();
    for id in own {
        let layer = assembly.layer(*id);
        let contents = contents(&layer.contents);
        if let Some(problem) = &layer.problem {
            let reason = format!("{} '{}': {problem}", layer.kind, shown(layer));
            reasons.push([vec![reason], remarks(assembly, layer)].concat().join("; "));
        } else if let Some(contents) = contents {
            reasons.push(format!("{} '{}': {contents}", layer.kind, shown(layer)));
        }
    }
    reasons.join("; ")
}

/// Describes contents with a command for Linux. Returns None for other contents.
pub(crate) fn contents(contents: &Contents) -> Option<String> {
    match contents {
        Contents::Other(foreign) => {
            let hint = foreign.hint?;
            let (description, name) = (foreign.description, foreign.name);
            Some(format!(
                "{description} ({name}) is not read here; on Linux: {hint}"
            ))
        }
        _ => None,
    }
}

/// Returns whether a disk cannot be read alone. It is a part of an array or a volume group, has partitions, or is one of
/// several devices of btrfs.
pub(crate) fn is_part(name: &OsStr) -> bool {
    let path = Path::new(name);
    let Ok(device) = FileDevice::peek(path) else {
        return false;
    };
    let assembly = Assembly::of([disk(path, device)]);
    match assembly.layers()[0].contents {
        Contents::Member | Contents::PhysicalVolume | Contents::Partitions => true,
        Contents::Btrfs { num_devices, .. } => num_devices > 1,
        Contents::Other(_) | Contents::Unknown => false,
    }
}

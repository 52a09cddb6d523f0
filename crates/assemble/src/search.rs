//! The search for a volume that is on layers and not directly on the named disks. For reading only.
//!
//! The named disks are first. If parts of arrays or volume groups are missing, other disks follow.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use ubtrfs_device::{Access, BlockDevice, DeviceError, FileDevice, files_at, nearby};

use crate::assembly::{Assembly, Disk, FoundVolume, is_layered};
use crate::contents::Contents;
use crate::layer::{Component, Layer, LayerId, LayerKind};
use crate::md::metadata::{Metadata, find};
use crate::md::problem::LeftOut;

/// The devices of a volume, with names for messages.
pub type Devices = Vec<(PathBuf, Arc<dyn BlockDevice>)>;

/// The places of disks that were not named.
#[derive(Clone, Copy, Debug)]
pub enum OtherDisks<'a> {
    /// Files, folders, or `/dev` for all block devices. Empty: only named disks are used.
    At(&'a [PathBuf]),
    /// The folders of named images, and all block devices if one of them is named.
    Nearby,
}

/// The disks to search for layers.
#[derive(Clone, Copy, Debug)]
pub struct Disks<'a> {
    pub named: &'a [PathBuf],
    pub others: OtherDisks<'a>,
}

/// Why no volume on layers can be opened.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "'{first}' and '{second}' may both be member {role} of the array '{array}': name the one that is meant"
    )]
    Ambiguous {
        first: String,
        second: String,
        role: usize,
        array: String,
    },
    /// Layers are never written.
    #[error("read-only: {0}")]
    ReadOnly(&'static str),
    #[error("the disks hold several volumes: choose one with the option 'volume': {0}")]
    Several(String),
    #[error("the disks hold no volume '{chosen}', but {volumes}")]
    NotFound { chosen: String, volumes: String },
    /// Layers were found, and none has a readable volume.
    #[error("{0}")]
    Unreadable(String),
}

impl SearchError {
    /// Returns the errno that Linux has for a similar failure.
    pub fn errno(&self) -> Errno {
        match self {
            SearchError::Device(error) => error.errno(),
            SearchError::ReadOnly(_) => Errno::ROFS,
            SearchError::NotFound { .. } => Errno::NOENT,
            SearchError::Ambiguous { .. }
            | SearchError::Several(_)
            | SearchError::Unreadable(_) => Errno::INVAL,
        }
    }
}

/// Returns whether layers can be the reason why a volume was not opened directly, with this error.
fn may_have_layers(errno: Errno) -> bool {
    // Missing files and rights, and devices in use.
    !matches!(
        errno,
        Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::BUSY
    )
}

/// Finds the disks nearby that may complete the layers of the named ones. Empty if nothing is missing.
pub fn other_disks(named: &[PathBuf]) -> Vec<PathBuf> {
    let disks = named.iter().filter_map(|path| peek(path).ok());
    let disks: Vec<Disk> = disks.collect();
    if is_complete(&Assembly::of(disks)) {
        return Vec::new();
    }
    let mut nearby = nearby(named);
    nearby.retain(|path| FileDevice::peek(path).is_ok_and(|device| is_layered(&device)));
    nearby
}

fn peek(path: &Path) -> Result<Disk, DeviceError> {
    Ok(disk(path, FileDevice::peek(path)?))
}

fn disk(path: &Path, device: FileDevice) -> Disk {
    Disk {
        path: path.to_owned(),
        device: Arc::new(device),
    }
}

/// Returns whether other disks cannot add anything.
fn is_complete(assembly: &Assembly) -> bool {
    let is_part =
        |layer: &Layer| matches!(layer.contents, Contents::Member | Contents::PhysicalVolume);
    let mut layers = assembly.layers().iter();
    let has_parts = layers.clone().any(is_part);
    !has_parts || assembly.has_layers() && !layers.any(Layer::is_degraded)
}

impl Disks<'_> {
    /// Finds the layers.
    ///
    /// # Errors
    ///
    /// A named disk cannot be opened, or one of two others may be meant.
    pub fn assemble(&self) -> Result<Assembly, SearchError> {
        self.assemble_on(|path| FileDevice::open(path, Access::Read))
    }

    /// Finds the layers without locks, for descriptions of volumes that may be in use.
    ///
    /// # Errors
    ///
    /// As [`Disks::assemble`].
    pub fn peek(&self) -> Result<Assembly, SearchError> {
        self.assemble_on(FileDevice::peek)
    }

    fn assemble_on(
        &self,
        open: impl Fn(&Path) -> Result<FileDevice, DeviceError>,
    ) -> Result<Assembly, SearchError> {
        let mut disks = Vec::new();
        for path in self.named {
            disks.push(disk(path, open(path)?));
        }
        let assembly = Assembly::of(disks.clone());
        if is_complete(&assembly) {
            return Ok(assembly);
        }
        let others = match self.others {
            OtherDisks::At([]) => return Ok(assembly),
            OtherDisks::At(places) => files_at(places),
            OtherDisks::Nearby => nearby(self.named),
        };
        for path in others {
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

    /// Returns the volumes on layers of the named disks.
    pub fn volumes(&self, assembly: &Assembly) -> Vec<FoundVolume> {
        let is_whole_disk = |id: &LayerId| assembly.layer(*id).kind == LayerKind::Disk;
        let is_own = |id: &LayerId| self.is_on_named(assembly, *id);
        let mut volumes = assembly.volumes();
        volumes.retain(|volume| {
            volume.layers.iter().any(is_own) && !volume.layers.iter().all(is_whole_disk)
        });
        volumes
    }

    /// Returns the devices of the chosen volume, or of the only one. Returns `None` if the disks have no layers.
    ///
    /// # Errors
    ///
    /// - the volume would be written
    /// - there are several volumes, or the chosen one does not exist
    /// - layers cannot be read
    pub fn devices_of(
        &self,
        chosen: Option<&str>,
        access: Access,
    ) -> Result<Option<Devices>, SearchError> {
        let assembly = self.assemble()?;
        let volumes = self.volumes(&assembly);
        let mut matching = volumes.iter().filter(|volume| {
            chosen.is_none_or(|chosen| names(&assembly, volume).any(|name| name == chosen))
        });
        match (matching.next(), matching.next()) {
            (Some(volume), None) => {
                if access == Access::Write {
                    let top = assembly.layer(volume.layers[0]);
                    return Err(SearchError::ReadOnly(origin(top)));
                }
                warn(&assembly, volume);
                Ok(Some(assembly.devices(volume)))
            }
            (Some(_), Some(_)) => Err(SearchError::Several(list(&assembly, &volumes))),
            (None, _) if !volumes.is_empty() => Err(SearchError::NotFound {
                chosen: chosen.unwrap_or_default().to_owned(),
                volumes: list(&assembly, &volumes),
            }),
            // A writer has better reasons not to touch the device.
            (None, _) if access == Access::Write => Ok(None),
            (None, _) => {
                let own = assembly.iter().map(|(id, _)| id);
                let own = own.filter(|&id| self.is_on_named(&assembly, id));
                match reasons(&assembly, own) {
                    reasons if reasons.is_empty() => Ok(None),
                    reasons => Err(SearchError::Unreadable(reasons)),
                }
            }
        }
    }

    /// Opens a volume with `direct`, or on layers with `from_devices`.
    ///
    /// Layers are first for members of md arrays. A member of a mirror may look like a device of the volume, but only
    /// md knows whether it is stale.
    ///
    /// # Errors
    ///
    /// The errors of both functions, and of [`Disks::devices_of`].
    pub fn open<T, E: From<SearchError> + fmt::Display>(
        &self,
        chosen: Option<&str>,
        access: Access,
        errno_of: impl FnOnce(&E) -> Errno,
        direct: impl FnOnce() -> Result<T, E>,
        from_devices: impl FnOnce(Devices) -> Result<T, E>,
    ) -> Result<T, E> {
        if access == Access::Read && self.has_members() {
            match self.devices_of(chosen, access) {
                Ok(Some(devices)) => return from_devices(devices),
                // The superblock of md may be a remnant.
                Ok(None) | Err(SearchError::Unreadable(_) | SearchError::Device(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let error = match direct() {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        if !may_have_layers(errno_of(&error)) {
            return Err(error);
        }
        match self.devices_of(chosen, access) {
            Ok(Some(devices)) => from_devices(devices),
            Ok(None) => Err(error),
            // Either may be the reason.
            Err(SearchError::Unreadable(reasons)) => {
                Err(SearchError::Unreadable(format!("{reasons}: {error}")).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a named disk is a member of an md array.
    fn has_members(&self) -> bool {
        self.named.iter().any(|path| {
            let device = FileDevice::peek(path);
            device.is_ok_and(|device| matches!(find(&device), Ok(Some(Metadata::Member(_)))))
        })
    }

    /// Returns whether a named disk belongs to a layer. It may be left out of an array, as a stale member.
    fn is_on_named(&self, assembly: &Assembly, id: LayerId) -> bool {
        // Named disks are the first layers.
        let is_named = |id: &LayerId| id.0 < self.named.len();
        let leaves_out_named = |id: &LayerId| {
            let parts = &assembly.layer(*id).components;
            parts
                .iter()
                .any(|part| matches!(part, Component::LeftOut(id, _) if is_named(id)))
        };
        let below = assembly.closure(id);
        below.iter().any(|id| is_named(id) || leaves_out_named(id))
    }

    /// Refuses to guess between disks that were not named. A copy of a disk may be of an earlier time.
    fn refuse_ambiguous(&self, assembly: &Assembly) -> Result<(), SearchError> {
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
                    return Err(SearchError::Ambiguous {
                        first: Shown(assembly.layer(*first)).to_string(),
                        second: Shown(assembly.layer(*second)).to_string(),
                        role: *role,
                        array: Shown(layer).to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The name of a layer for messages. It may be any text, so control characters are escaped.
struct Shown<'a>(&'a Layer);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.name.chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
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
    let volumes = volumes.iter().map(|volume| {
        let name = Shown(assembly.layer(volume.layers[0]));
        format!("{} ({name})", volume.fsid)
    });
    volumes.collect::<Vec<_>>().join(", ")
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
            tracing::warn!("{} '{}': {line}", layer.kind, Shown(layer));
        }
    }
}

/// Describes the parts of a layer that are missing or left out, and its notes.
fn remarks(assembly: &Assembly, layer: &Layer) -> Vec<String> {
    let parts = layer.components.iter().filter_map(|part| match part {
        Component::Present(_) => None,
        Component::Missing(part) => Some(format!("{part} is missing")),
        Component::LeftOut(_, LeftOut::Spare | LeftOut::Journal) => None,
        Component::LeftOut(id, reason) => {
            let name = Shown(assembly.layer(*id));
            Some(format!("{name} is left out: {reason}"))
        }
    });
    let notes = layer.notes.iter().map(ToString::to_string);
    parts.chain(notes).collect()
}

/// Describes why none of the layers has a volume. Empty if all of them are readable.
fn reasons(assembly: &Assembly, own: impl Iterator<Item = LayerId>) -> String {
    let mut reasons = Vec::new();
    for id in own {
        let layer = assembly.layer(id);
        if let Some(problem) = &layer.problem {
            let reason = format!("{} '{}': {problem}", layer.kind, Shown(layer));
            reasons.push([vec![reason], remarks(assembly, layer)].concat().join("; "));
        } else if let Some(remedy) = layer.contents.remedy() {
            reasons.push(format!("{} '{}': {remedy}", layer.kind, Shown(layer)));
        }
    }
    reasons.join("; ")
}

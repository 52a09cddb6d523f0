//! The layers on a set of disks.
//!
//! Each device is examined once. When no device is left, arrays are assembled of the members found so far, and then
//! volume groups. These give new devices to examine.
//!
//! Invariants
//! - LAYERS-1: the number of layers and their nesting are bounded, whatever the disks contain.
//! - LAYERS-2: an array or a volume group is assembled once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::uuid::Uuid;

use crate::contents::{self, Contents};
use crate::layer::{Component, Layer, LayerId, LayerKind, MissingPart, Problem};
use crate::lvm::group::{Group, PhysicalVolumes};
use crate::lvm::problem::LabelProblem;
use crate::lvm::{label, text};
use crate::md::array::{Array, Member};
use crate::md::metadata::{self, Metadata};
use crate::md::problem::LeftOut;
use crate::md::superblock::{SECTOR, Superblock};
use crate::md::version0;
use crate::partition::{self, Partition};
use crate::window::Window;

#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod tests;

// LAYERS-1
const MAX_LAYERS: usize = 1 << 10;
const MAX_DEPTH: usize = 8;
const MAX_GROUPS: usize = 32;

/// A disk or image to examine.
#[derive(Clone, Debug)]
pub struct Disk {
    pub path: PathBuf,
    pub device: Arc<dyn BlockDevice>,
}

/// The layers on a set of disks. Disks are the first layers.
#[derive(Debug)]
pub struct Assembly {
    layers: Vec<Layer>,
}

/// A btrfs volume on layers.
#[derive(Clone, Debug)]
pub struct FoundVolume {
    pub fsid: Uuid,
    pub label: String,
    /// The layers that have its devices.
    pub layers: Vec<LayerId>,
}

impl Assembly {
    /// Finds all layers on the disks.
    pub fn of(disks: impl IntoIterator<Item = Disk>) -> Assembly {
        let mut search = Search::default();
        for disk in disks {
            let name = disk.path.display().to_string();
            search.add(name, LayerKind::Disk, Vec::new(), Ok(disk.device));
        }
        search.run();
        Assembly {
            layers: search.layers,
        }
    }

    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.0]
    }

    /// Returns all layers with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (LayerId, &Layer)> {
        let layers = self.layers.iter().enumerate();
        layers.map(|(index, layer)| (LayerId(index), layer))
    }

    /// Returns the layers that no other layer is made of.
    pub fn tops(&self) -> Vec<LayerId> {
        let below: BTreeSet<LayerId> = self
            .layers
            .iter()
            .flat_map(|layer| &layer.components)
            .filter_map(|part| match part {
                Component::Present(layer) | Component::LeftOut(layer, _) => Some(*layer),
                Component::Missing(_) => None,
            })
            .collect();
        let tops = self.iter().map(|(id, _)| id);
        tops.filter(|id| !below.contains(id)).collect()
    }

    /// Returns a layer and all layers below it, each once.
    pub fn closure(&self, top: LayerId) -> BTreeSet<LayerId> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![top];
        while let Some(id) = todo.pop() {
            if seen.insert(id) {
                todo.extend(self.layer(id).below());
            }
        }
        seen
    }

    /// Returns the btrfs volumes on all layers.
    pub fn volumes(&self) -> Vec<FoundVolume> {
        let mut volumes: Vec<FoundVolume> = Vec::new();
        for (id, layer) in self.iter() {
            let Contents::Btrfs { fsid, label, .. } = &layer.contents else {
                continue;
            };
            match volumes.iter_mut().find(|volume| volume.fsid == *fsid) {
                Some(volume) => volume.layers.push(id),
                None => volumes.push(FoundVolume {
                    fsid: *fsid,
                    label: label.clone(),
                    layers: vec![id],
                }),
            }
        }
        volumes
    }

    /// Returns the devices of a volume with names for messages.
    pub fn devices(&self, volume: &FoundVolume) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
        let layers = volume.layers.iter().map(|&id| self.layer(id));
        layers
            .filter_map(|layer| Some((PathBuf::from(&layer.name), layer.device.clone()?)))
            .collect()
    }

    /// Returns whether anything other than whole disks was found.
    pub fn has_layers(&self) -> bool {
        self.layers
            .iter()
            .any(|layer| layer.kind != LayerKind::Disk)
    }
}

/// Returns whether a device is a member of an array, a physical volume or a disk with partitions. This reads less than
/// an assembly.
pub fn is_layered(device: &dyn BlockDevice) -> bool {
    let is_member = || matches!(metadata::find(device), Ok(Some(_)));
    let is_physical_volume = || matches!(label::find(device), Ok(Some(_)));
    let has_gpt = || matches!(partition::gpt::read(device), Ok(Some(_)));
    let has_mbr = || matches!(partition::mbr::read(device), Ok(Some(_)));
    is_member() || is_physical_volume() || has_gpt() || has_mbr()
}

/// Returns the partitions of a disk if its superblock, of metadata 0.90, belongs to the last partition. It does if the
/// partition has room for the member's data.
fn holders(
    superblock: &Superblock,
    device: &dyn BlockDevice,
) -> Result<Option<Vec<Partition>>, Problem> {
    let read = |error: io::Error| Problem::Read(error.kind());
    if !superblock.is_version0() {
        return Ok(None);
    }
    let partitions = match partition::gpt::read(device).map_err(read)? {
        Some(partitions) => Some(partitions),
        None => partition::mbr::read(device).map_err(read)?,
    };
    let header = &superblock.header;
    let own_place = header.super_offset.get() * SECTOR;
    let size = header.size.get() * SECTOR;
    let has_it = |partition: &Partition| {
        let place = version0::place(partition.len);
        place.is_some_and(|place| partition.start + place == own_place && size <= place)
    };
    Ok(partitions.filter(|partitions| partitions.iter().any(has_it)))
}

/// The members of an array that were found so far.
#[derive(Default)]
struct FoundArray {
    members: Vec<(LayerId, Member)>,
    is_assembled: bool,
    /// None if it had no room among the layers.
    layer: Option<LayerId>,
}

#[derive(Default)]
struct Search {
    layers: Vec<Layer>,
    /// The first layer that has not been examined.
    next: usize,
    /// By the uuid of the array, in the order of discovery.
    arrays: Vec<([u8; 16], FoundArray)>,
    physical_volumes: BTreeMap<String, LayerId>,
    /// The newest metadata of each group, by its id.
    groups: BTreeMap<String, Group>,
    done_groups: BTreeSet<String>,
}

impl Search {
    fn run(&mut self) {
        loop {
            while self.next < self.layers.len() {
                let id = LayerId(self.next);
                self.next += 1;
                if let Err(problem) = self.examine(id) {
                    self.layers[id.0].problem = Some(problem);
                }
            }
            self.assemble_arrays();
            if self.next == self.layers.len() {
                self.assemble_groups();
            }
            if self.next == self.layers.len() {
                break;
            }
        }
    }

    /// Adds a layer, unless there are too many.
    fn add(
        &mut self,
        name: String,
        kind: LayerKind,
        components: Vec<Component>,
        device: Result<Arc<dyn BlockDevice>, Problem>,
    ) -> Option<LayerId> {
        let depths = components.iter().filter_map(|part| match part {
            Component::Present(layer) => Some(self.layers[layer.0].depth + 1),
            _ => None,
        });
        let depth = depths.max().unwrap_or(0);
        // LAYERS-1
        if depth > MAX_DEPTH || self.layers.len() >= MAX_LAYERS {
            tracing::warn!(name, "layers are nested too deep, or there are too many");
            return None;
        }
        let (device, problem) = match device {
            Ok(device) => (Some(device), None),
            Err(problem) => (None, Some(problem)),
        };
        self.layers.push(Layer {
            name,
            kind,
            len_bytes: device.as_ref().map_or(0, |device| device.len_bytes()),
            components,
            contents: Contents::Unknown,
            notes: Vec::new(),
            problem,
            device,
            depth,
        });
        Some(LayerId(self.layers.len() - 1))
    }

    /// Detects the contents of a layer.
    fn examine(&mut self, id: LayerId) -> Result<(), Problem> {
        let read = |error: io::Error| Problem::Read(error.kind());
        let Some(device) = self.layers[id.0].device.clone() else {
            return Ok(());
        };
        let contents = match metadata::find(&*device).map_err(read)? {
            Some(Metadata::Member(superblock)) => match holders(&superblock, &*device)? {
                Some(partitions) => {
                    self.add_partitions(id, &device, partitions);
                    Contents::Partitions
                }
                None => {
                    let superblock = *superblock;
                    self.add_member(id, Member { device, superblock });
                    Contents::Member
                }
            },
            other => {
                let damaged = match other {
                    Some(Metadata::Damaged(problem)) => Some(problem),
                    _ => None,
                };
                match self.examine_others(id, &device)? {
                    Contents::Unknown | Contents::Other(_) if damaged.is_some() => {
                        self.layers[id.0].problem = damaged.map(Problem::from);
                        Contents::Member
                    }
                    contents => contents,
                }
            }
        };
        self.layers[id.0].contents = contents;
        Ok(())
    }

    fn examine_others(
        &mut self,
        id: LayerId,
        device: &Arc<dyn BlockDevice>,
    ) -> Result<Contents, Problem> {
        let read = |error: io::Error| Problem::Read(error.kind());
        if let Some(label) = label::find(&**device).map_err(read)? {
            self.add_physical_volume(id, label);
            return Ok(Contents::PhysicalVolume);
        }
        if let Some(contents) = contents::btrfs(&**device) {
            return Ok(contents);
        }
        if let Some(partitions) = partition::gpt::read(&**device).map_err(read)? {
            self.add_partitions(id, device, partitions);
            return Ok(Contents::Partitions);
        }
        if let Some(foreign) = contents::foreign(&**device).map_err(read)? {
            return Ok(Contents::Other(foreign));
        }
        if let Some(partitions) = partition::mbr::read(&**device).map_err(read)? {
            self.add_partitions(id, device, partitions);
            return Ok(Contents::Partitions);
        }
        Ok(Contents::Unknown)
    }

    fn add_partitions(
        &mut self,
        id: LayerId,
        device: &Arc<dyn BlockDevice>,
        partitions: Vec<Partition>,
    ) {
        for Partition {
            number,
            label,
            start,
            len,
        } in partitions
        {
            let name = format!("{}, partition {number}", self.layers[id.0].name);
            let window = Window::open(Arc::clone(device), start, len, []);
            let kind = LayerKind::Partition { number, label };
            self.add(name, kind, vec![Component::Present(id)], Ok(window));
        }
    }

    fn add_member(&mut self, id: LayerId, member: Member) {
        let uuid = member.superblock.header.set_uuid;
        let known = self.arrays.iter().position(|(own, _)| *own == uuid);
        let known = known.unwrap_or_else(|| {
            self.arrays.push((uuid, FoundArray::default()));
            self.arrays.len() - 1
        });
        let array = &mut self.arrays[known].1;
        // LAYERS-2
        if !array.is_assembled {
            array.members.push((id, member));
        } else if let Some(layer) = array.layer {
            let late = Component::LeftOut(id, LeftOut::Late);
            self.layers[layer.0].components.push(late);
        }
    }

    fn add_physical_volume(&mut self, id: LayerId, label: label::Label) {
        let mut problem = label.problem;
        for metadata in &label.texts {
            match text::parse(metadata).and_then(|parsed| Group::of(&parsed)) {
                Ok(group) => self.add_group(group),
                Err(fault) => problem = Some(fault),
            }
        }
        self.layers[id.0].problem = problem.map(|problem: LabelProblem| problem.into());
        self.physical_volumes.entry(label.uuid).or_insert(id);
    }

    fn add_group(&mut self, group: Group) {
        match self.groups.get(&group.id) {
            Some(known) if known.seqno >= group.seqno => {}
            // LAYERS-1
            None if self.groups.len() >= MAX_GROUPS => {}
            _ => {
                self.groups.insert(group.id.clone(), group);
            }
        }
    }

    fn assemble_arrays(&mut self) {
        for index in 0..self.arrays.len() {
            let found = &self.arrays[index].1;
            // LAYERS-2
            if found.is_assembled {
                continue;
            }
            let members: Vec<Member> = found.members.iter().map(|(_, m)| m.clone()).collect();
            let array = Array::assemble(&members);
            let ids: Vec<LayerId> = found.members.iter().map(|(id, _)| *id).collect();
            let roles = array
                .roles
                .iter()
                .enumerate()
                .map(|(role, member)| match member {
                    Some(member) => Component::Present(ids[*member]),
                    None => Component::Missing(MissingPart::Member(role)),
                });
            let left_out = array.left_out.into_iter();
            let left_out = left_out.map(|(member, reason)| Component::LeftOut(ids[member], reason));
            let components = roles.chain(left_out).collect();
            let kind = LayerKind::Array {
                level: array.level,
                members: array.roles.len(),
                chunk_bytes: array.chunk_bytes,
            };
            let device = array.device.map_err(Problem::from);
            let id = self.add(array.name, kind, components, device);
            if let Some(id) = id {
                self.layers[id.0].notes = array.notes;
            }
            let found = &mut self.arrays[index].1;
            found.layer = id;
            found.is_assembled = true;
            found.members = Vec::new();
        }
    }

    fn assemble_groups(&mut self) {
        let groups: Vec<Group> = self.groups.values().cloned().collect();
        for group in groups {
            // LAYERS-2
            if !self.done_groups.insert(group.id.clone()) {
                continue;
            }
            let found: PhysicalVolumes = group
                .physical_volumes()
                .filter_map(|uuid| {
                    let id = self.physical_volumes.get(uuid)?;
                    Some((uuid.to_owned(), self.layers[id.0].device.clone()?))
                })
                .collect();
            for volume in group.logical_volumes(&found) {
                let components = volume.physical.iter();
                let components = components.map(|uuid| match self.physical_volumes.get(uuid) {
                    Some(id) => Component::Present(*id),
                    None => Component::Missing(MissingPart::PhysicalVolume(uuid.clone())),
                });
                let components = components.collect();
                let device = volume.device.map_err(Problem::from);
                let kind = LayerKind::LogicalVolume;
                if let Some(id) = self.add(volume.name, kind, components, device) {
                    self.layers[id.0].len_bytes = volume.len_bytes;
                }
            }
        }
    }
}

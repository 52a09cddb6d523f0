//! The logical volumes of a volume group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use super::problem::{LabelProblem, VolumeProblem};
use super::text::{Section, Value};
use crate::concat::{Concat, Piece};
use crate::mapping::ReadOnly;
use crate::striped::{Column, Striped};

const SECTOR: u64 = 512;
/// More than the tools recommend by far.
const MAX_SEGMENTS: u64 = 1 << 16;
const MAX_STRIPES: u64 = 128;

/// The metadata of a volume group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) id: String,
    /// Increases with each change.
    pub(crate) seqno: u64,
    extent_sectors: Option<u64>,
    /// By their names in the metadata.
    physical_volumes: BTreeMap<String, PhysicalVolume>,
    logical_volumes: Section,
}

#[derive(Clone, Debug)]
struct PhysicalVolume {
    /// Without dashes.
    uuid: String,
    /// The sector of its first extent.
    start: u64,
}

/// A logical volume.
#[derive(Debug)]
pub(crate) struct LogicalVolume {
    pub(crate) name: String,
    pub(crate) len_bytes: u64,
    /// The UUIDs of its physical volumes, without dashes.
    pub(crate) physical: BTreeSet<String>,
    pub(crate) device: Result<Arc<dyn BlockDevice>, VolumeProblem>,
}

/// Devices by the UUID of the physical volume on them.
pub(crate) type PhysicalVolumes = BTreeMap<String, Arc<dyn BlockDevice>>;

impl Group {
    /// Finds the group in parsed metadata.
    pub(crate) fn of(text: &Section) -> Result<Group, LabelProblem> {
        let mut groups = text.sections();
        let (name, section) = groups.next().ok_or(LabelProblem::Field("vg"))?;
        Ok(Group {
            name: name.to_owned(),
            id: section
                .text("id")
                .ok_or(LabelProblem::Field("id"))?
                .to_owned(),
            seqno: section
                .number("seqno")
                .ok_or(LabelProblem::Field("seqno"))?,
            extent_sectors: section.number("extent_size"),
            physical_volumes: section
                .section("physical_volumes")
                .into_iter()
                .flat_map(|volumes| volumes.sections())
                .filter_map(|(name, volume)| Some((name.to_owned(), PhysicalVolume::of(volume)?)))
                .collect(),
            logical_volumes: section
                .section("logical_volumes")
                .cloned()
                .unwrap_or_default(),
        })
    }

    /// Returns the UUIDs of all physical volumes, without dashes.
    pub(crate) fn physical_volumes(&self) -> impl Iterator<Item = &str> {
        self.physical_volumes
            .values()
            .map(|volume| volume.uuid.as_str())
    }

    /// Returns the visible logical volumes. Others are parts of visible ones.
    pub(crate) fn logical_volumes(&self, found: &PhysicalVolumes) -> Vec<LogicalVolume> {
        let is_visible = |volume: &Section| {
            let status = volume.list("status").unwrap_or_default();
            status.contains(&Value::Text("VISIBLE".to_owned()))
        };
        let volumes = self.logical_volumes.sections();
        let visible = volumes.filter(|(_, volume)| is_visible(volume));
        visible
            .map(|(name, volume)| self.logical_volume(name, volume, found))
            .collect()
    }

    fn logical_volume(
        &self,
        name: &str,
        volume: &Section,
        found: &PhysicalVolumes,
    ) -> LogicalVolume {
        let mut builder = Builder {
            group: self,
            found,
            physical: BTreeSet::new(),
            len_bytes: 0,
            pieces: Vec::new(),
        };
        let device = builder.add_segments(volume);
        let Builder {
            physical,
            len_bytes,
            pieces,
            ..
        } = builder;
        let device = device.and_then(|()| {
            let concat = Concat::new(pieces).ok_or(VolumeProblem::Field("extent_count"))?;
            Ok(Arc::new(ReadOnly(concat)) as Arc<dyn BlockDevice>)
        });
        LogicalVolume {
            name: format!("{}/{name}", self.name),
            len_bytes,
            physical,
            device,
        }
    }

    fn extent_bytes(&self) -> Result<u64, VolumeProblem> {
        let sectors = self.extent_sectors.filter(|&sectors| sectors > 0);
        let bytes = sectors.and_then(|sectors| sectors.checked_mul(SECTOR));
        bytes.ok_or(VolumeProblem::Field("extent_size"))
    }
}

impl PhysicalVolume {
    fn of(volume: &Section) -> Option<PhysicalVolume> {
        Some(PhysicalVolume {
            uuid: volume.text("id")?.replace('-', ""),
            start: volume.number("pe_start")?,
        })
    }
}

/// Collects the pieces of one volume.
struct Builder<'a> {
    group: &'a Group,
    found: &'a PhysicalVolumes,
    physical: BTreeSet<String>,
    len_bytes: u64,
    pieces: Vec<Piece>,
}

impl Builder<'_> {
    /// Adds all segments. After an error the list of physical volumes is still as complete as possible.
    fn add_segments(&mut self, volume: &Section) -> Result<(), VolumeProblem> {
        let count = volume.number("segment_count").unwrap_or(0);
        if count == 0 || count > MAX_SEGMENTS {
            return Err(VolumeProblem::Field("segment_count"));
        }
        let named = volume.sections().filter_map(|(name, section)| {
            let number: u64 = name.strip_prefix("segment")?.parse().ok()?;
            Some((number, section))
        });
        let segments: BTreeMap<u64, &Section> = named.collect();
        let mut outcome = Ok(());
        for number in 1..=count {
            let added = match segments.get(&number) {
                Some(segment) => self.add_segment(segment),
                None => Err(VolumeProblem::Gap),
            };
            outcome = outcome.and(added);
        }
        outcome
    }

    fn add_segment(&mut self, segment: &Section) -> Result<(), VolumeProblem> {
        let extent_bytes = self.group.extent_bytes()?;
        let bytes = |name: &'static str| {
            let extents = segment.number(name);
            let bytes = extents.and_then(|extents| extents.checked_mul(extent_bytes));
            bytes.ok_or(VolumeProblem::Field(name))
        };
        let (start, len) = (bytes("start_extent")?, bytes("extent_count")?);
        let expected = self.len_bytes;
        self.len_bytes = start.checked_add(len).ok_or(VolumeProblem::Gap)?;
        let kind = segment.text("type").ok_or(VolumeProblem::Field("type"))?;
        // The type 'linear' is written as 'striped' with one stripe.
        if !matches!(kind, "striped" | "linear") {
            return Err(VolumeProblem::Segment(kind.to_owned()));
        }
        if start != expected || len == 0 {
            return Err(VolumeProblem::Gap);
        }
        let columns = self.columns(segment, extent_bytes);
        let mut columns = columns?;
        if let [_] = *columns
            && let Some((device, offset)) = columns.pop()
        {
            self.pieces.push(Piece {
                device,
                offset,
                len,
            });
            return Ok(());
        }
        let unit = segment
            .number("stripe_size")
            .and_then(|size| size.checked_mul(SECTOR));
        let unit = unit
            .filter(|&unit| unit > 0)
            .ok_or(VolumeProblem::Field("stripe_size"))?;
        let row = unit.checked_mul(columns.len() as u64);
        let row = row.filter(|&row| len.is_multiple_of(row));
        let rows = len / row.ok_or(VolumeProblem::Field("stripe_size"))?;
        let striped = Striped::new(columns, unit, rows, 0);
        self.pieces.push(Piece {
            device: Arc::new(ReadOnly(striped.ok_or(VolumeProblem::Field("stripes"))?)),
            offset: 0,
            len,
        });
        Ok(())
    }

    /// Returns the devices of a segment's stripes, with the offset where each begins.
    fn columns(
        &mut self,
        segment: &Section,
        extent_bytes: u64,
    ) -> Result<Vec<Column>, VolumeProblem> {
        const STRIPES: VolumeProblem = VolumeProblem::Field("stripes");
        let count = segment.number("stripe_count").unwrap_or(0);
        let stripes = segment.list("stripes").ok_or(STRIPES)?;
        if count == 0 || count > MAX_STRIPES || stripes.len() as u64 != count * 2 {
            return Err(STRIPES);
        }
        let mut columns = Vec::new();
        let mut outcome = Ok(());
        for stripe in stripes.chunks_exact(2) {
            let [Value::Text(name), Value::Number(extent)] = stripe else {
                return Err(STRIPES);
            };
            let PhysicalVolume { uuid, start } =
                self.group.physical_volumes.get(name).ok_or(STRIPES)?;
            let start = start.checked_mul(SECTOR);
            let extent = u64::try_from(*extent).ok();
            let offset = extent.and_then(|extent| extent.checked_mul(extent_bytes));
            let offset = offset
                .zip(start)
                .and_then(|(offset, start)| offset.checked_add(start));
            self.physical.insert(uuid.clone());
            match self.found.get(uuid) {
                Some(device) => columns.push((Arc::clone(device), offset.ok_or(STRIPES)?)),
                None => outcome = Err(VolumeProblem::Missing { uuid: uuid.clone() }),
            }
        }
        outcome.map(|()| columns)
    }
}

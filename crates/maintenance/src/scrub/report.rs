//! The result of a scrub: counts of each device, and the damage that is left.

use std::path::PathBuf;

use ubtrfs_device::{DeviceScrub, ScrubCounts};
use ubtrfs_format::uuid::Uuid;

/// The result of a scrub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScrubReport {
    /// The UUID of the volume.
    pub uuid: Uuid,
    /// The scrubbed devices by id.
    pub devices: Vec<DeviceScrub>,
    /// The damage that no copy could repair, sorted by address. Its length is limited.
    pub damage: Vec<Damage>,
    /// The number of damaged ranges that are not listed.
    pub unlisted: u64,
    /// The files with damaged data in the list.
    pub files: Vec<DamagedFile>,
    /// Whether `files` has all of them.
    pub are_all_files: bool,
    /// The reason why the error counts of the devices or their superblocks could not be written. The repairs are kept.
    pub unsaved: Option<String>,
    /// Whether the scrub was cancelled. It can be resumed with the counts of its devices.
    pub is_cancelled: bool,
}

impl ScrubReport {
    /// Returns the sums over all devices.
    pub fn totals(&self) -> ScrubCounts {
        let none = ScrubCounts::default();
        self.devices
            .iter()
            .fold(none, |sum, device| sum.plus(&device.counts))
    }

    /// Returns whether no error was found.
    pub fn is_clean(&self) -> bool {
        let totals = self.totals();
        totals.errors() == 0 && totals.unverified_errors == 0
    }
}

/// A file with damaged data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedFile {
    /// The id of its subvolume.
    pub subvolume_id: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its paths within the subvolume, without a slash at the start. Empty for a deleted file, or if they are unreadable.
    pub paths: Vec<PathBuf>,
    /// Its damaged ranges, ascending.
    pub ranges: Vec<DamagedRange>,
}

/// A range of a file that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DamagedRange {
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes. In a compressed extent all of its bytes after the offset may be lost, too.
    pub len_bytes: u64,
}

/// A damaged range of one device that could not be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The content.
    pub kind: DamageKind,
    /// The address within the volume; 0 for a superblock.
    pub logical: u64,
    /// The length of the range in bytes.
    pub len_bytes: u64,
    /// The id of the device.
    pub device_id: u64,
    /// The offset on the device.
    pub physical: u64,
    /// The defect, for display.
    pub message: String,
}

/// The kind of content of a damaged range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// Content of files.
    Data,
    /// A tree block, with the id of its tree if the extent tree names it.
    TreeBlock {
        /// The id of the tree.
        tree: Option<u64>,
    },
    /// A copy of the superblock.
    Superblock,
    /// A range whose extents or checksums cannot be looked up.
    Unverified,
}

/// The damage so far.
#[derive(Debug, Default)]
pub(super) struct DamageList {
    listed: Vec<Damage>,
    unlisted: u64,
    limit: usize,
}

impl DamageList {
    pub(super) fn new(limit: usize) -> DamageList {
        DamageList {
            limit,
            ..DamageList::default()
        }
    }

    /// Adds a range, joined with the one before it if that is of data and ends there.
    pub(super) fn push(&mut self, damage: Damage) {
        if let Some(last) = self.listed.last_mut()
            && last.kind == DamageKind::Data
            && damage.kind == DamageKind::Data
            && last.device_id == damage.device_id
            && last.logical + last.len_bytes == damage.logical
            && last.physical + last.len_bytes == damage.physical
        {
            last.len_bytes += damage.len_bytes;
        } else if self.listed.len() < self.limit {
            self.listed.push(damage);
        } else {
            self.unlisted += 1;
        }
    }

    pub(super) fn into_parts(mut self) -> (Vec<Damage>, u64) {
        self.listed.sort_by_key(|of| (of.logical, of.device_id));
        (self.listed, self.unlisted)
    }
}

//! The superblock copies of one device: reading all, choosing one, writing.
//!
//! Invariants
//! - COPIES-1: a valid copy 0 is the device's superblock, as in the kernel, regardless of the other copies. It is
//!   written first, and a log sync writes no other.
//! - COPIES-2: without a valid copy 0 the device belongs to no volume. Another copy may be a remnant of an older
//!   volume or of an earlier state. It is read only on request, and never on a device with other contents.
//!
//! A copy with another fsid than a valid copy 0 is a remnant of an older volume.

use std::path::Path;

use ubtrfs_format::superblock::{
    MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, SuperblockError,
};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use crate::block_device::BlockDevice;
use crate::chunk_layout::RESERVED_BYTES;
use crate::error::{DeviceError, SoundCopy};
use crate::find_signatures::find_signatures;
use crate::overwrite::MAGIC_AT;
use crate::signature::Signature;

#[cfg(test)]
mod tests;

/// Why a copy is not a candidate.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    #[error("cannot be read: {0}")]
    Read(#[source] std::io::Error),
    #[error(transparent)]
    Invalid(#[from] SuperblockError),
    #[error("belongs to another volume, {0}")]
    OtherVolume(Uuid),
}

/// The contents of one superblock location.
#[derive(Debug)]
pub struct SuperblockCopy {
    pub mirror: usize,
    pub offset: u64,
    /// The bytes read, valid or not; None if they could not be read.
    pub block: Option<Box<Superblock>>,
    pub problem: Option<CopyProblem>,
}

/// Which superblock copy of a device is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyChoice {
    /// Only copy 0.
    #[default]
    First,
    /// The newest of the other copies if copy 0 is invalid. For reading only.
    Any,
}

/// All copies within the device.
#[derive(Debug)]
pub struct DeviceSuperblocks {
    pub copies: Vec<SuperblockCopy>,
    best: Option<usize>,
}

impl DeviceSuperblocks {
    pub fn read(device: &dyn BlockDevice) -> DeviceSuperblocks {
        Self::read_validated(device, Superblock::validate)
    }

    /// Reads the copies and accepts unknown flags. For reading only.
    pub fn read_but_flags(device: &dyn BlockDevice) -> DeviceSuperblocks {
        Self::read_validated(device, Superblock::validate_but_flags)
    }

    fn read_validated(device: &dyn BlockDevice, validate: Validate) -> DeviceSuperblocks {
        let mut copies: Vec<SuperblockCopy> = SUPERBLOCK_OFFSETS
            .into_iter()
            .enumerate()
            .filter(|&(_, offset)| has_room(device, offset))
            .map(|(mirror, offset)| read_copy(device, mirror, offset, validate))
            .collect();
        if let Some(first) = copies.first()
            && first.mirror == 0
            && first.problem.is_none()
            && let Some(fsid) = first.block.as_ref().map(|block| block.fsid)
        {
            for copy in &mut copies[1..] {
                if let (None, Some(block)) = (&copy.problem, &copy.block)
                    && block.fsid != fsid
                {
                    copy.problem = Some(CopyProblem::OtherVolume(block.fsid));
                }
            }
        }
        let valid = |index: &usize| copies[*index].problem.is_none();
        let newest = (0..copies.len()).filter(valid).max_by_key(|&index| {
            let generation = copies[index].block.as_ref().map(|b| b.generation.get());
            (generation, std::cmp::Reverse(index))
        });
        let first = (0..copies.len()).find(|&index| copies[index].mirror == 0);
        let best = first.filter(valid).or(newest);
        DeviceSuperblocks { copies, best }
    }

    /// Returns copy 0, or the newest of the other copies if it is invalid. Does not check for unsupported features.
    pub fn best(&self) -> Option<&Superblock> {
        self.best_copy()?.block.as_deref()
    }

    fn best_copy(&self) -> Option<&SuperblockCopy> {
        Some(&self.copies[self.best?])
    }

    /// Returns the superblock of `device`, the device that the copies were read from (COPIES-2).
    ///
    /// Errors: no copy is usable. The error has the actual contents of the device, and a valid copy if one exists.
    pub fn require(
        &self,
        device: &dyn BlockDevice,
        path: &Path,
        choice: CopyChoice,
    ) -> Result<&Superblock, DeviceError> {
        let Some((copy, block)) = self
            .best_copy()
            .and_then(|copy| Some((copy, copy.block.as_deref()?)))
        else {
            return Err(self.why_none(device, path));
        };
        if copy.mirror == 0 {
            return Ok(block);
        }
        let holds = find_foreign(device, path, block)?.map(|(signature, _)| signature);
        if holds.is_some() {
            let path = path.to_owned();
            return Err(DeviceError::NotBtrfs { path, holds });
        }
        match choice {
            CopyChoice::Any => Ok(block),
            CopyChoice::First => Err(DeviceError::FirstSuperblock {
                path: path.to_owned(),
                problem: Box::new(self.why_none(device, path)),
                copy: SoundCopy {
                    mirror: copy.mirror,
                    offset: copy.offset,
                    generation: block.generation.get(),
                },
            }),
        }
    }

    /// Returns whether copy 0 has the magic number, valid or not. Other tools identify btrfs by it.
    pub fn first_has_magic(&self) -> bool {
        self.copies.first().is_some_and(|copy| {
            copy.mirror == 0
                && !matches!(
                    copy.problem,
                    Some(CopyProblem::Read(_) | CopyProblem::Invalid(SuperblockError::Magic))
                )
        })
    }

    /// Returns the invalid copies.
    pub fn bad_copies(&self) -> impl Iterator<Item = (&SuperblockCopy, &CopyProblem)> {
        self.copies
            .iter()
            .filter_map(|copy| Some((copy, copy.problem.as_ref()?)))
    }

    /// Returns the error that explains the problem of copy 0.
    fn why_none(&self, device: &dyn BlockDevice, path: &Path) -> DeviceError {
        let first = self.copies.iter().find(|copy| copy.mirror == 0);
        let path = path.to_owned();
        let offset = SUPERBLOCK_OFFSETS[0];
        match first.and_then(|copy| copy.problem.as_ref()) {
            Some(CopyProblem::Invalid(SuperblockError::Incomplete)) => {
                DeviceError::Incomplete { path }
            }
            Some(CopyProblem::Read(source)) => DeviceError::ReadRaw {
                path,
                offset,
                len: SUPERBLOCK_SIZE as u64,
                source: std::io::Error::new(source.kind(), source.to_string()),
            },
            Some(CopyProblem::Invalid(source)) if *source != SuperblockError::Magic => {
                DeviceError::Superblock {
                    path,
                    offset,
                    source: source.clone(),
                }
            }
            _ => {
                let found = find_signatures(device).unwrap_or_default();
                let mut signatures = found.iter().map(|found| found.signature);
                let holds = signatures.find(|signature| !signature.is_btrfs());
                DeviceError::NotBtrfs { path, holds }
            }
        }
    }
}

/// Rejects writing to a device that has the signature of another format in addition to its superblock.
pub(crate) fn refuse_foreign(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
) -> Result<(), DeviceError> {
    match find_foreign(device, path, superblock)? {
        // Boot loaders and partition tables are located before the superblock.
        None | Some((Signature::PartitionTable(_), _)) => Ok(()),
        Some((signature, offset)) => Err(DeviceError::Foreign {
            path: path.to_owned(),
            signature,
            offset,
        }),
    }
}

/// Finds the signature of another format, and its offset. Ignores marks that may be part of a file's contents.
fn find_foreign(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
) -> Result<Option<(Signature, u64)>, DeviceError> {
    let found = find_signatures(device).map_err(|source| DeviceError::ReadRaw {
        path: path.to_owned(),
        offset: 0,
        len: RESERVED_BYTES,
        source,
    })?;
    let end = superblock.dev_item.total_bytes.get();
    let is_outside = |at: &u64| *at < RESERVED_BYTES || *at >= end;
    let mut foreign = found.iter().filter(|found| !found.signature.is_btrfs());
    Ok(foreign.find_map(|found| {
        let mut starts = found.marks.iter().map(|mark| mark.start);
        Some((found.signature, starts.find(is_outside)?))
    }))
}

fn has_room(device: &dyn BlockDevice, offset: u64) -> bool {
    offset + SUPERBLOCK_SIZE as u64 <= device.len_bytes()
}

/// Checks whether a copy read from an offset is valid.
type Validate = fn(&Superblock, u64) -> Result<(), SuperblockError>;

fn read_copy(
    device: &dyn BlockDevice,
    mirror: usize,
    offset: u64,
    validate: Validate,
) -> SuperblockCopy {
    let mut block = Box::new(Superblock::new_zeroed());
    let problem = match device.read_at(block.as_mut_bytes(), offset) {
        Ok(()) => validate(&block, offset).err().map(CopyProblem::from),
        Err(source) => Some(CopyProblem::Read(source)),
    };
    let unreadable = matches!(problem, Some(CopyProblem::Read(_)));
    SuperblockCopy {
        mirror,
        offset,
        block: (!unreadable).then_some(block),
        problem,
    }
}

/// A subset of a device's superblock copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    All,
    First,
    Others,
}

/// Writes every copy within the device, each with its own address and checksum. Does not flush.
pub fn write_superblocks(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
) -> Result<(), DeviceError> {
    let written = write_superblock_copies(device, path, superblock, Copies::All);
    written.error.map_or(Ok(()), Err)
}

/// The result of writing superblock copies.
#[derive(Debug, Default)]
pub(crate) struct WrittenCopies {
    pub(crate) len_bytes: u64,
    /// The first error.
    pub(crate) error: Option<DeviceError>,
}

/// Writes copies. A failed copy does not stop the others.
pub(crate) fn write_superblock_copies(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
    copies: Copies,
) -> WrittenCopies {
    let mut written = WrittenCopies::default();
    // A file may be longer than its volume. The item of a new volume may not have its size yet.
    let end = match superblock.dev_item.total_bytes.get() {
        0 => device.len_bytes(),
        total_bytes => device.len_bytes().min(total_bytes),
    };
    for (mirror, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
        // The kernel neither reads nor writes a copy that ends exactly at the end of the device.
        if offset + SUPERBLOCK_SIZE as u64 >= end {
            break;
        }
        match (copies, mirror) {
            (Copies::First, 1..) | (Copies::Others, 0) => continue,
            _ => {}
        }
        let mut copy = superblock.clone();
        copy.bytenr = offset.into();
        copy.seal();
        match device.write_at(copy.as_bytes(), offset) {
            Ok(()) => written.len_bytes += SUPERBLOCK_SIZE as u64,
            Err(source) => {
                written.error.get_or_insert(DeviceError::WriteRaw {
                    path: path.to_owned(),
                    offset,
                    len: SUPERBLOCK_SIZE as u64,
                    source,
                });
            }
        }
    }
    written
}

/// Erases the magic number of every copy within the device, durably.
pub(crate) fn erase_magic(device: &dyn BlockDevice, path: &Path) -> Result<(), DeviceError> {
    for offset in SUPERBLOCK_OFFSETS
        .into_iter()
        .filter(|&at| has_room(device, at))
    {
        let at = offset + MAGIC_AT;
        let zeros = [0; MAGIC.len()];
        let written = device.write_at(&zeros, at);
        written.map_err(|source| DeviceError::WriteRaw {
            path: path.to_owned(),
            offset: at,
            len: zeros.len() as u64,
            source,
        })?;
    }
    device.flush().map_err(|source| DeviceError::Flush {
        path: path.to_owned(),
        source,
    })
}

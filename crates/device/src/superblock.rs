//! The superblock copies of one device: reading all, choosing one, writing all.
//!
//! The newest valid copy wins, the first among equals: a log commit writes copy 0 only and leaves the
//! generation alone. As long as copy 0 is valid, a copy with another fsid is a leftover of an older
//! volume and is never chosen.

use std::path::Path;

use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, SuperblockError};
use ubtrfs_format::uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use crate::block_device::BlockDevice;
use crate::error::DeviceError;

#[cfg(test)]
mod tests;

/// Why a copy was not chosen from.
#[derive(Debug, thiserror::Error)]
pub enum CopyProblem {
    #[error("cannot be read: {0}")]
    Read(#[source] std::io::Error),
    #[error(transparent)]
    Invalid(#[from] SuperblockError),
    #[error("belongs to another volume, {0}")]
    OtherVolume(Uuid),
}

/// What lies at one of the places for a superblock.
#[derive(Debug)]
pub struct SuperblockCopy {
    pub mirror: usize,
    pub offset: u64,
    /// The bytes found, valid or not; None if they could not be read.
    pub block: Option<Box<Superblock>>,
    pub problem: Option<CopyProblem>,
}

/// All copies for which a device has room.
#[derive(Debug)]
pub struct DeviceSuperblocks {
    pub copies: Vec<SuperblockCopy>,
    best: Option<usize>,
}

impl DeviceSuperblocks {
    pub fn read(device: &dyn BlockDevice) -> DeviceSuperblocks {
        Self::read_judged(device, Superblock::validate)
    }

    /// Those with flags that nobody knows are valid, too. For reading only.
    pub fn read_but_flags(device: &dyn BlockDevice) -> DeviceSuperblocks {
        Self::read_judged(device, Superblock::validate_but_flags)
    }

    fn read_judged(device: &dyn BlockDevice, judge: Judge) -> DeviceSuperblocks {
        let mut copies: Vec<SuperblockCopy> = SUPERBLOCK_OFFSETS
            .into_iter()
            .enumerate()
            .filter(|&(_, offset)| has_room(device, offset))
            .map(|(mirror, offset)| read_copy(device, mirror, offset, judge))
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
        let best = (0..copies.len())
            .filter(|&index| copies[index].problem.is_none())
            .max_by_key(|&index| {
                let generation = copies[index].block.as_ref().map(|b| b.generation.get());
                (generation, std::cmp::Reverse(index))
            });
        DeviceSuperblocks { copies, best }
    }

    /// The copy to believe, valid by itself; whether its features are supported is not judged.
    pub fn best(&self) -> Option<&Superblock> {
        self.copies[self.best?].block.as_deref()
    }

    /// As [`DeviceSuperblocks::best`]; none is an error that says what the device is instead.
    pub fn require(&self, path: &Path) -> Result<&Superblock, DeviceError> {
        self.best().ok_or_else(|| self.why_none(path))
    }

    /// Whether copy 0 has the magic, valid or not: what other tools take as "is btrfs".
    pub fn first_has_magic(&self) -> bool {
        self.copies.first().is_some_and(|copy| {
            copy.mirror == 0
                && !matches!(
                    copy.problem,
                    Some(CopyProblem::Read(_) | CopyProblem::Invalid(SuperblockError::Magic))
                )
        })
    }

    /// Copies that have a problem though the volume should have them.
    pub fn bad_copies(&self) -> impl Iterator<Item = (&SuperblockCopy, &CopyProblem)> {
        self.copies
            .iter()
            .filter_map(|copy| Some((copy, copy.problem.as_ref()?)))
    }

    /// The first problem that tells more than that there is no magic.
    fn why_none(&self, path: &Path) -> DeviceError {
        let path = path.to_owned();
        for (copy, problem) in self.bad_copies() {
            match problem {
                CopyProblem::Invalid(SuperblockError::Magic) | CopyProblem::OtherVolume(_) => {}
                CopyProblem::Invalid(SuperblockError::Incomplete) => {
                    return DeviceError::Incomplete { path };
                }
                CopyProblem::Invalid(source) => {
                    return DeviceError::Superblock {
                        path,
                        offset: copy.offset,
                        source: source.clone(),
                    };
                }
                CopyProblem::Read(source) => {
                    return DeviceError::ReadRaw {
                        path,
                        offset: copy.offset,
                        len: SUPERBLOCK_SIZE as u64,
                        source: std::io::Error::new(source.kind(), source.to_string()),
                    };
                }
            }
        }
        DeviceError::NotBtrfs { path }
    }
}

fn has_room(device: &dyn BlockDevice, offset: u64) -> bool {
    offset + SUPERBLOCK_SIZE as u64 <= device.len_bytes()
}

/// Whether a copy that was read from an offset is valid.
type Judge = fn(&Superblock, u64) -> Result<(), SuperblockError>;

fn read_copy(device: &dyn BlockDevice, mirror: usize, offset: u64, judge: Judge) -> SuperblockCopy {
    let mut block = Box::new(Superblock::new_zeroed());
    let problem = match device.read_at(block.as_mut_bytes(), offset) {
        Ok(()) => judge(&block, offset).err().map(CopyProblem::from),
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

/// Which copies of a device's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copies {
    All,
    First,
    Others,
}

/// Writes every copy for which the device has room, each with its own place and sum. Does not flush.
pub fn write_superblocks(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
) -> Result<(), DeviceError> {
    write_superblock_copies(device, path, superblock, Copies::All)
}

pub(crate) fn write_superblock_copies(
    device: &dyn BlockDevice,
    path: &Path,
    superblock: &Superblock,
    copies: Copies,
) -> Result<(), DeviceError> {
    // A file may be longer than the volume in it. A new volume's item may not say its size yet.
    let end = match superblock.dev_item.total_bytes.get() {
        0 => device.len_bytes(),
        total_bytes => device.len_bytes().min(total_bytes),
    };
    for (mirror, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
        if offset + SUPERBLOCK_SIZE as u64 > end {
            break;
        }
        match (copies, mirror) {
            (Copies::First, 1..) | (Copies::Others, 0) => continue,
            _ => {}
        }
        let mut copy = superblock.clone();
        copy.bytenr = offset.into();
        copy.seal();
        device
            .write_at(copy.as_bytes(), offset)
            .map_err(|source| DeviceError::WriteRaw {
                path: path.to_owned(),
                offset,
                len: SUPERBLOCK_SIZE as u64,
                source,
            })?;
    }
    Ok(())
}

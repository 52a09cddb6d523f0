//! Selection of the devices that form the volume.
//!
//! All given devices must belong to one volume, except for seeds, which may be the base of another volume.
//!
//! If two devices claim the same devid:
//! - For reading, the newer one wins. At equal generations a given device wins over a found one; otherwise it is an
//!   error.
//! - For writing, a given device is never replaced by another. A found device with the same devid is ignored unless
//!   it is newer, which is an error. Two clones of one device are an error.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_format::ids::DevId;
use ubtrfs_format::superblock::{Superblock, flags};
use ubtrfs_format::uuid::Uuid;

use super::{PoolOptions, PresentDevice};
use crate::access::Access;
use crate::block_device::BlockDevice;
use crate::device_name::DeviceName;
use crate::error::DeviceError;
use crate::file::{FileDevice, identity};
use crate::scan::scan;
use crate::superblock::{CopyChoice, DeviceSuperblocks, refuse_foreign};

/// A device with a valid superblock.
#[derive(Debug)]
pub(super) struct Candidate {
    device: PresentDevice,
    /// Given by the caller and not found by a scan.
    given: bool,
}

impl Candidate {
    fn fsid(&self) -> Uuid {
        self.device.superblock.fsid
    }

    fn generation(&self) -> u64 {
        self.device.superblock.generation.get()
    }

    fn uuid(&self) -> Uuid {
        self.device.superblock.dev_item.uuid
    }

    fn is_seed(&self) -> bool {
        self.device.superblock.flags.get() & flags::SEEDING != 0
    }
}

#[derive(Debug)]
pub(super) struct Assembled {
    pub(super) members: Vec<PresentDevice>,
    pub(super) seeds: Vec<PresentDevice>,
    pub(super) superblock: Arc<Superblock>,
    pub(super) newest_path: PathBuf,
}

pub(super) fn open_named(
    names: &[DeviceName],
    options: &PoolOptions,
) -> Result<Vec<Candidate>, DeviceError> {
    let mut seen = BTreeSet::new();
    let mut candidates = Vec::new();
    for name in names {
        let path = name.path()?;
        let first_time = identity(path).map_or(true, |id| seen.insert(id));
        if first_time {
            candidates.push(open_one(path.to_owned(), options, true)?);
        }
    }
    let Some(fsid) = volume_of(&candidates) else {
        return Err(DeviceError::NoDevice);
    };
    for found in scan(&options.scan) {
        if found.fsid == fsid && identity(&found.path).is_ok_and(|id| seen.insert(id)) {
            candidates.push(open_one(found.path, options, false)?);
        }
    }
    Ok(candidates)
}

fn open_one(path: PathBuf, options: &PoolOptions, given: bool) -> Result<Candidate, DeviceError> {
    let block = FileDevice::open(&path, options.access)?;
    candidate(path, Arc::new(block), options, given)
}

pub(super) fn read_superblocks(
    devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    options: &PoolOptions,
) -> Result<Vec<Candidate>, DeviceError> {
    devices
        .into_iter()
        .map(|(path, block)| candidate(path, block, options, true))
        .collect()
}

fn candidate(
    path: PathBuf,
    block: Arc<dyn BlockDevice>,
    options: &PoolOptions,
    given: bool,
) -> Result<Candidate, DeviceError> {
    let superblocks = if options.ignore_super_flags {
        DeviceSuperblocks::read_but_flags(block.as_ref())
    } else {
        DeviceSuperblocks::read(block.as_ref())
    };
    let choice = match options.access {
        Access::Read => options.copies,
        Access::Write => CopyChoice::First,
    };
    let superblock = superblocks.require(&*block, &path, choice)?;
    if options.access == Access::Write {
        refuse_foreign(&*block, &path, superblock)?;
    }
    let superblock = Arc::new(superblock.clone());
    for (copy, problem) in superblocks.bad_copies() {
        tracing::warn!(path = %path.display(), copy = copy.mirror, %problem, "bad superblock copy");
    }
    let unknown = superblock.flags.get() & !flags::KNOWN;
    if unknown != 0 {
        tracing::warn!(path = %path.display(), "unknown superblock flags {unknown:#x} are ignored");
    }
    Ok(Candidate {
        device: PresentDevice {
            path,
            block,
            superblock,
            refuses_discards: Arc::default(),
            has_superblock: Arc::new(true.into()),
        },
        given,
    })
}

/// Returns the fsid of the volume: from the first device that is not a seed, otherwise from the first one.
fn volume_of(candidates: &[Candidate]) -> Option<Uuid> {
    let first = candidates.iter().find(|c| !c.is_seed());
    Some(first.or(candidates.first())?.fsid())
}

pub(super) fn choose(candidates: Vec<Candidate>, access: Access) -> Result<Assembled, DeviceError> {
    let wanted = volume_of(&candidates).ok_or(DeviceError::NoDevice)?;
    let mut seeds = Vec::new();
    let mut members: BTreeMap<DevId, Candidate> = BTreeMap::new();
    for candidate in candidates {
        if candidate.fsid() != wanted {
            if !candidate.is_seed() {
                return Err(DeviceError::OtherVolume {
                    found: candidate.fsid(),
                    path: candidate.device.path,
                    wanted,
                });
            }
            seeds.push(candidate.device);
            continue;
        }
        let devid = DevId(candidate.device.superblock.dev_item.devid.get());
        let winner = match members.remove(&devid) {
            None => candidate,
            Some(other) => one_of(devid, other, candidate, access)?,
        };
        members.insert(devid, winner);
    }
    let members: Vec<PresentDevice> = members.into_values().map(|c| c.device).collect();
    // The first among equals, so that the choice is deterministic.
    let newest = members
        .iter()
        .rev()
        .max_by_key(|member| member.superblock.generation.get())
        .ok_or(DeviceError::NoDevice)?;
    let superblock = Arc::clone(&newest.superblock);
    let newest_path = newest.path.clone();
    for member in &members {
        let generation = member.superblock.generation.get();
        if generation < superblock.generation.get() {
            tracing::warn!(
                path = %member.path.display(), generation, newest = superblock.generation.get(),
                "device is stale"
            );
        }
    }
    Ok(Assembled {
        members,
        seeds,
        superblock,
        newest_path,
    })
}

fn one_of(
    devid: DevId,
    first: Candidate,
    second: Candidate,
    access: Access,
) -> Result<Candidate, DeviceError> {
    let rank = |c: &Candidate| (c.generation(), c.given);
    let order = rank(&first).cmp(&rank(&second));
    let is_decided = match access {
        Access::Read => order.is_ne(),
        Access::Write => may_write_one_of(&first, &second),
    };
    if !is_decided {
        return Err(DeviceError::DuplicateDevice {
            devid,
            generations: [first.generation(), second.generation()],
            first: first.device.path,
            second: second.device.path,
        });
    }
    let (kept, dropped) = match order {
        Ordering::Less => (second, first),
        _ => (first, second),
    };
    tracing::warn!(
        %devid, used = %kept.device.path.display(), ignored = %dropped.device.path.display(),
        "two devices claim the same number"
    );
    Ok(kept)
}

/// Returns whether a writer may choose between two devices with one devid: there is only one plausible choice.
fn may_write_one_of(first: &Candidate, second: &Candidate) -> bool {
    match (first.given, second.given) {
        (true, true) => false,
        (true, false) => first.generation() >= second.generation(),
        (false, true) => second.generation() >= first.generation(),
        // After a replace, the old device has another uuid than its successor with the same devid.
        (false, false) => {
            first.uuid() != second.uuid() && first.generation() != second.generation()
        }
    }
}

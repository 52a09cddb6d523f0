//! The other devices of a volume of which not all were named. For a block device they are block devices, for an
//! image what lies in its folder.
//!
//! The kernel knows the devices of a volume from what was scanned before; nothing registers images. So the devices
//! are looked for when a volume is opened, by fsid and devid.
//!
//! Invariants
//! - SIBLING-1: a look at a folder reads a bounded number of names and of files, whatever the folder holds. Files whose
//!   names begin like that of the named image come first.
//! - SIBLING-2: of several files that claim one devid none is guessed. One that is as new as the named device is
//!   taken if it is the only one, otherwise they are an error.
//! - SIBLING-3: a device of another generation is taken for writing if nothing else claims to be that device. A power cut
//!   between two superblocks leaves such devices, and so does a device that failed for a while. The named device may be
//!   a copy of an earlier time. So a newer one is not taken if another newer file claims to be the named device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ubtrfs_format::ids::DevId;

use crate::access::Access;
use crate::error::DeviceError;
use crate::file::identity;
use crate::scan::{FoundDevice, scan};

#[cfg(test)]
mod tests;

/// How many names of a folder are looked at.
const MAX_NAMES: usize = 1 << 16;
/// How many files of a folder are read.
const MAX_FILES: usize = 1 << 10;

/// The devices found beside those that are named.
#[derive(Debug, Default)]
pub struct Beside {
    /// All that claim to be devices of the named ones' volume.
    pub of_volume: Vec<FoundDevice>,
    /// Devices of other volumes that are seeds, clones among them. Only the chunk tree of the named ones' volume tells
    /// whether it has grown from them.
    pub seeds: Vec<FoundDevice>,
}

/// Finds the devices that the volume of the named ones has besides, each once.
///
/// # Errors
///
/// Two devices claim one devid, and nothing tells which is meant.
pub fn siblings(named: &[PathBuf], access: Access) -> Result<Vec<PathBuf>, DeviceError> {
    let Some(candidates) = candidates(named) else {
        return Ok(Vec::new());
    };
    let Candidates {
        generation,
        beside,
        has_rival,
    } = candidates;
    let mut by_devid: BTreeMap<u64, Vec<FoundDevice>> = BTreeMap::new();
    for found in beside.of_volume {
        by_devid.entry(found.devid).or_default().push(found);
    }
    let mut chosen = Vec::new();
    for (devid, mut claimants) in by_devid {
        if access == Access::Write || claimants.len() > 1 {
            // SIBLING-2, SIBLING-3
            let is_as_new = |found: &FoundDevice| found.generation == generation;
            if claimants.iter().any(is_as_new) {
                claimants.retain(is_as_new);
            } else if let [only] = claimants.as_slice() {
                let is_older = only.generation < generation;
                let is_taken = access == Access::Read || is_older || !has_rival;
                tracing::warn!(
                    path = %only.path.display(), devid, generation, found = only.generation, is_taken,
                    "a device of the volume has another generation"
                );
                if !is_taken {
                    continue;
                }
            }
        }
        match claimants.as_slice() {
            [first, second, ..] => {
                return Err(DeviceError::Ambiguous {
                    devid: DevId(devid),
                    first: first.path.clone(),
                    second: second.path.clone(),
                });
            }
            _ => chosen.extend(claimants.into_iter().map(|found| found.path)),
        }
    }
    Ok(chosen)
}

/// Finds all that may be devices of the named ones' volume, and are not named.
pub fn all_siblings(named: &[PathBuf]) -> Beside {
    candidates(named).map_or_else(Beside::default, |candidates| candidates.beside)
}

/// The devices found for some that are named.
struct Candidates {
    /// The generation of the newest named device.
    generation: u64,
    /// Those of the volume have other devids than the named ones.
    beside: Beside,
    /// A newer device claims to be one of the named ones.
    has_rival: bool,
}

/// Finds devices beside the named ones. None if no device is missing.
fn candidates(named: &[PathBuf]) -> Option<Candidates> {
    let there = scan(named);
    let fsid = there.first()?.fsid;
    let of_volume = || there.iter().filter(|found| found.fsid == fsid);
    let newest = of_volume().max_by_key(|found| found.generation)?;
    let devids: BTreeSet<u64> = of_volume().map(|found| found.devid).collect();
    if devids.len() as u64 >= newest.num_devices {
        return None;
    }
    let named_ones: BTreeSet<_> = named
        .iter()
        .filter_map(|path| identity(path).ok())
        .collect();
    let mut seen = named_ones.clone();
    let mut places: Vec<PathBuf> = Vec::new();
    for path in named {
        let is_block = path
            .metadata()
            .is_ok_and(|metadata| metadata.file_type().is_block_device());
        match is_block {
            true => places.push(PathBuf::from("/dev")),
            false => places.extend(neighbours(path)),
        }
    }
    places.retain(|place| place == Path::new("/dev") || is_new(place, &mut seen));
    let (mut of_volume, mut others): (Vec<_>, Vec<_>) = scan(&places)
        .into_iter()
        .partition(|found| found.fsid == fsid);
    // A scan of all block devices finds those that are named once more.
    let is_named =
        |path: &Path| identity(path).is_ok_and(|identity| named_ones.contains(&identity));
    others.retain(|found| found.is_seed() && !is_named(&found.path));
    let has_rival = of_volume.iter().any(|found| {
        let is_newer = found.generation > newest.generation;
        is_newer && devids.contains(&found.devid) && !is_named(&found.path)
    });
    of_volume.retain(|found| !devids.contains(&found.devid));
    let beside = Beside {
        of_volume,
        seeds: others,
    };
    Some(Candidates {
        generation: newest.generation,
        beside,
        has_rival,
    })
}

fn is_new(path: &Path, seen: &mut BTreeSet<crate::file::DeviceIdentity>) -> bool {
    identity(path).is_ok_and(|identity| seen.insert(identity))
}

/// Lists files in the folder of an image that may be images, those with the most similar names first.
fn neighbours(image: &Path) -> Vec<PathBuf> {
    let image = image.canonicalize().unwrap_or_else(|_| image.to_owned());
    let (Some(folder), Some(own)) = (image.parent(), image.file_name()) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        // SIBLING-1
        .take(MAX_NAMES)
        .map(|entry| entry.file_name())
        .filter(|name| name != own)
        .collect();
    names.sort_by_cached_key(|name| (usize::MAX - common_prefix(name, own), name.clone()));
    let paths = names.into_iter().map(|name| folder.join(name));
    let is_file = |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.is_file());
    paths.filter(is_file).take(MAX_FILES).collect()
}

fn common_prefix(one: &OsStr, other: &OsStr) -> usize {
    let pairs = one.as_bytes().iter().zip(other.as_bytes());
    pairs.take_while(|(one, other)| one == other).count()
}

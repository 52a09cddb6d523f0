//! The other devices of a volume, if not all of them were named. For a block device they are searched among block
//! devices, for an image in its folder.
//!
//! The kernel knows the devices of a volume from earlier scans; nothing registers images. So the devices are searched
//! by fsid and devid when a volume is opened.
//!
//! Invariants
//! - SIBLING-1: the search in a folder reads a bounded number of names and files, however large the folder is. Files
//!   with names similar to the named image's are first.
//! - SIBLING-2: several files that claim one devid are never guessed between. One with the generation of the named
//!   device is used if it is the only one, otherwise they are an error.
//! - SIBLING-3: a device of another generation is used for writing if no other file claims its devid. Such devices
//!   result from a power cut between two superblock writes, or from a temporary device failure. But the named device
//!   may be an old copy. So a newer device is not used if another, newer file claims to be the named device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ubtrfs_format::ids::DevId;

use crate::access::Access;
use crate::error::DeviceError;
use crate::file::{DeviceIdentity, identity};
use crate::scan::{self, FoundDevice, scan};

#[cfg(test)]
mod tests;

/// Maximum number of names to read in a folder.
const MAX_NAMES: usize = 1 << 16;
/// Maximum number of files to read in a folder.
const MAX_FILES: usize = 1 << 10;

/// The devices found in addition to the named ones.
#[derive(Debug, Default)]
pub struct Beside {
    /// All devices that claim to belong to the volume of the named ones.
    pub of_volume: Vec<FoundDevice>,
    /// Seed devices of other volumes, including clones. Only the chunk tree shows whether the volume is based on
    /// them.
    pub seeds: Vec<FoundDevice>,
}

/// Finds the other devices of the volume of the named ones, each once.
///
/// # Errors
///
/// Two devices claim one devid, and the intended one is unknown.
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

/// Finds all devices that may belong to the volume of the named ones and are not named.
pub fn all_siblings(named: &[PathBuf]) -> Beside {
    candidates(named).map_or_else(Beside::default, |candidates| candidates.beside)
}

/// The devices found for some named ones.
struct Candidates {
    /// The generation of the newest named device.
    generation: u64,
    /// Devices of the volume here have other devids than the named ones.
    beside: Beside,
    /// Whether a newer device claims to be one of the named ones.
    has_rival: bool,
}

/// Finds candidates for missing devices. Returns None if no device is missing.
fn candidates(named: &[PathBuf]) -> Option<Candidates> {
    let there = scan(named);
    let fsid = there.first()?.fsid;
    let of_volume = || there.iter().filter(|found| found.fsid == fsid);
    let newest = of_volume().max_by_key(|found| found.generation)?;
    let devids: BTreeSet<u64> = of_volume().map(|found| found.devid).collect();
    if devids.len() as u64 >= newest.num_devices {
        return None;
    }
    let named_ones = identities(named);
    let places = places_near(named, named_ones.clone());
    let (mut of_volume, mut others): (Vec<_>, Vec<_>) = scan(&places)
        .into_iter()
        .partition(|found| found.fsid == fsid);
    // A scan of all block devices finds the named ones again.
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

/// Returns the files and block devices near the named ones, which may belong to the same array or volume group.
pub fn nearby(named: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = identities(named);
    let mut paths = scan::candidates(&places_near(named, seen.clone()));
    paths.retain(|path| is_new(path, &mut seen));
    paths
}

/// Returns the files and block devices at places: files, folders, or `/dev`.
pub fn files_at(places: &[PathBuf]) -> Vec<PathBuf> {
    scan::candidates(places)
}

fn identities(named: &[PathBuf]) -> BTreeSet<DeviceIdentity> {
    let identities = named.iter().filter_map(|path| identity(path).ok());
    identities.collect()
}

/// Returns the places to search for other devices: `/dev` if a block device is named, and the neighbours of images.
fn places_near(named: &[PathBuf], mut seen: BTreeSet<DeviceIdentity>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    for path in named {
        let is_block = path
            .metadata()
            .is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_block {
            places.push(PathBuf::from("/dev"))
        } else {
            places.extend(neighbours(path))
        }
    }
    places.retain(|place| place == Path::new("/dev") || is_new(place, &mut seen));
    places
}

fn is_new(path: &Path, seen: &mut BTreeSet<DeviceIdentity>) -> bool {
    identity(path).is_ok_and(|identity| seen.insert(identity))
}

/// Lists files in the folder of an image that may be images, the most similar names first.
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

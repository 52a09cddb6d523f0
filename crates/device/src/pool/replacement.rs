//! A device that takes the place of another one, and the copy to it.
//!
//! The replacement gets every write to the replaced device, at the same offset. The caller copies all space in use. A
//! commit then writes its superblock to the replacement in place of the replaced device. Chunks and items do not change.
//!
//! Invariants
//! - REPLACE-1: a copy of a range excludes all writes. So it never overwrites newer bytes on the replacement.
//! - REPLACE-2: when [`Pool::begin_replacement`] has returned, every write in progress includes the replacement.
//! - REPLACE-3: the replacement has no superblock before [`Pool::finish_replacement`] or the commit that precedes it. So
//!   it is no device of the volume after a power cut during the copy.
//! - REPLACE-4: a failed write to the replacement ends the replacement, and fails no write of the volume.
//!
//! Locks: `writes`, shared for a write to the devices and exclusive for a copy.
//! Not here: which space is in use, checksums (`storage::replace`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ubtrfs_format::ids::{DevId, Logical};

use super::{Pool, PoolDevice, PresentDevice};
use crate::block_device::{BlockDevice, DeviceWrite};
use crate::chunk_map::MappedChunk;
use crate::error::DeviceError;
use crate::nonblocking;
use crate::stripes::Piece;

/// A device that takes the place of another one.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) path: PathBuf,
    pub(super) block: Arc<dyn BlockDevice>,
    /// The first failed write or flush.
    failure: OnceLock<String>,
    /// Whether superblocks are written to it, and not to the replaced device.
    takes_superblocks: AtomicBool,
    pub(super) has_superblock: AtomicBool,
}

impl Replacement {
    /// Repeats writes of the replaced device (REPLACE-4).
    pub(super) fn write(&self, writes: &mut [DeviceWrite<'_>]) {
        self.block.write_batch(writes);
        for write in writes {
            if let Err(error) = &write.result {
                self.fail(error);
            }
        }
    }

    pub(super) fn fail(&self, error: &io::Error) {
        if self.failure.set(error.to_string()).is_ok() {
            tracing::error!(path = %self.path.display(), %error, "the replacement failed");
        }
    }

    pub(super) fn takes_superblocks(&self) -> bool {
        self.takes_superblocks.load(Ordering::Acquire)
    }
}

/// Verifies block `index` of a range.
pub type GoodBlock<'a> = &'a mut dyn FnMut(usize, &[u8]) -> bool;

/// A range to copy.
#[derive(Debug)]
pub struct CopyRange {
    pub logical: Logical,
    pub len: usize,
    /// The number of bytes that are verified together.
    pub block_bytes: usize,
}

impl Pool {
    /// Begins to repeat all writes of a device on its replacement (REPLACE-2). The device may be missing.
    ///
    /// Errors: no such device.
    pub fn begin_replacement(
        &self,
        devid: DevId,
        path: &Path,
        block: &Arc<dyn BlockDevice>,
    ) -> Result<(), DeviceError> {
        nonblocking::check()?;
        let replacement = Replacement {
            path: path.to_owned(),
            block: Arc::clone(block),
            failure: OnceLock::new(),
            takes_superblocks: AtomicBool::new(false),
            has_superblock: AtomicBool::new(false),
        };
        // REPLACE-3: no superblock until a commit prefers it.
        self.set_replacement(devid, Some(Arc::new(replacement)));
        // REPLACE-2
        drop(self.writes.write());
        Ok(())
    }

    /// Ends a replacement that is not complete. The device stays.
    pub fn cancel_replacement(&self, devid: DevId) {
        self.set_replacement(devid, None);
    }

    /// Writes superblocks to the replacement from now on, and no longer to the replaced device. Only a commit calls this,
    /// before its superblock.
    ///
    /// Errors: a write to the replacement has failed.
    pub fn prefer_replacement(&self, devid: DevId) -> Result<(), DeviceError> {
        let replacement = self.replacement_of(devid)?;
        replacement.takes_superblocks.store(true, Ordering::Release);
        Ok(())
    }

    /// Puts the replacement in the place of its device, after the commit is durable.
    pub fn finish_replacement(&self, devid: DevId) {
        self.change_table(|table| {
            let Some(old) = table.get(&devid) else {
                return;
            };
            let Some(replacement) = old.replacement.clone() else {
                return;
            };
            let superblock = old.present.as_ref().map(|present| &present.superblock);
            let present = PresentDevice {
                path: replacement.path.clone(),
                block: Arc::clone(&replacement.block),
                superblock: Arc::clone(superblock.unwrap_or(&self.superblock)),
                refuses_discards: Arc::default(),
                has_superblock: Arc::new(true.into()),
            };
            let device = PoolDevice {
                devid,
                uuid: old.uuid,
                item: old.item,
                is_named: true,
                present: Some(present),
                errors: Arc::default(),
                replacement: None,
            };
            // The errors of the old device do not concern the new one.
            device.errors.start_at_zero();
            table.insert(devid, Arc::new(device));
        });
    }

    fn set_replacement(&self, devid: DevId, replacement: Option<Arc<Replacement>>) {
        self.change_table(|table| {
            if let Some(old) = table.get(&devid) {
                let device = PoolDevice {
                    replacement,
                    ..old.copied()
                };
                table.insert(devid, Arc::new(device));
            }
        });
    }

    /// Returns the replacement of a device, if no write to it has failed.
    pub(super) fn replacement_of(&self, devid: DevId) -> Result<Arc<Replacement>, DeviceError> {
        let table = self.devices.load();
        let found = table
            .get(&devid)
            .and_then(|device| device.replacement.clone());
        let Some(replacement) = found else {
            return Err(DeviceError::NoReplacement { devid });
        };
        match replacement.failure.get() {
            None => Ok(replacement),
            Some(reason) => Err(DeviceError::ReplacementFailed {
                path: replacement.path.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// Returns whether a device has stripes of a chunk at a range.
    pub fn is_on_device(&self, devid: DevId, logical: Logical, len: u64) -> bool {
        let Ok(chunk) = self.chunk_map.get(logical) else {
            return false;
        };
        !places(&chunk, devid, logical, len).is_empty()
    }

    /// Copies a range of one chunk to the replacement, as far as it is on the replaced device. Blocks are verified with
    /// `good(index, bytes)`, and read from any mirror, or rebuilt from parity. Without `good`, the bytes of the replaced
    /// device are copied, or bytes of another mirror if it cannot be read.
    ///
    /// A block without a good copy is copied as it is. Returns the number of these blocks.
    ///
    /// # Errors
    /// No replacement, or it cannot be written. No chunk.
    pub fn copy_to_replacement(
        &self,
        devid: DevId,
        range: &CopyRange,
        good: Option<GoodBlock<'_>>,
    ) -> Result<usize, DeviceError> {
        nonblocking::check()?;
        let logical = range.logical;
        let chunk = self.chunk_map.get(logical)?;
        let places = places(&chunk, devid, logical, range.len as u64);
        if places.is_empty() {
            return Ok(0);
        }
        // REPLACE-1
        let _alone = self.writes.write();
        let replacement = self.replacement_of(devid)?;
        let mut bytes = vec![0; range.len];
        let mut bad = Vec::new();
        let is_verified = good.is_some();
        match good {
            Some(good) => {
                let read = self.read_checked(logical, &mut bytes, range.block_bytes, good);
                if read.is_err() {
                    let blocks = (0..).zip(bytes.chunks(range.block_bytes));
                    bad.extend(
                        blocks
                            .filter(|(index, block)| !good(*index, block))
                            .map(|b| b.0),
                    );
                }
            }
            None => bad.extend(0..range.len.div_ceil(range.block_bytes)),
        }
        let mut unreadable = 0;
        for &(mirror, piece) in &places {
            let from = (piece.logical.0 - logical.0) as usize;
            let part = &mut bytes[from..from + piece.len as usize];
            for &index in &bad {
                let start = (index * range.block_bytes).max(from);
                let end = ((index + 1) * range.block_bytes).min(from + part.len());
                if start < end {
                    let block = &mut part[start - from..end - from];
                    let at = Logical(logical.0 + start as u64);
                    unreadable += usize::from(!self.read_any(&chunk, at, mirror, block));
                }
            }
            let mut write = [DeviceWrite::new(piece.physical.0, part)];
            replacement.write(&mut write);
        }
        self.count_written(places.iter().map(|(_, piece)| piece.len).sum());
        self.replacement_of(devid)?;
        Ok(if is_verified { bad.len() } else { unreadable })
    }

    /// Reads the bytes of one mirror as they are, or else of another one. Returns false, and zeros, if none can be read.
    fn read_any(&self, chunk: &MappedChunk, at: Logical, mirror: usize, block: &mut [u8]) -> bool {
        let others = (1..=chunk.mirrors()).filter(|&other| other != mirror);
        for mirror in std::iter::once(mirror).chain(others) {
            if self.read_mirror(at, block, mirror).is_ok() {
                return true;
            }
        }
        block.fill(0);
        false
    }
}

/// Returns the parts of a range that are on a device, with their mirrors.
fn places(chunk: &MappedChunk, devid: DevId, logical: Logical, len: u64) -> Vec<(usize, Piece)> {
    let within = logical.0 - chunk.logical().0;
    let direct = if chunk.has_parity() {
        1
    } else {
        chunk.mirrors()
    };
    let mirrors = 1..=direct;
    mirrors
        .flat_map(|mirror| {
            chunk
                .pieces(within, len, mirror)
                .map(move |piece| (mirror, piece))
        })
        .filter(|(_, piece)| piece.devid == devid)
        .collect()
}

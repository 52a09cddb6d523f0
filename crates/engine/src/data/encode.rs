//! Whether and how data is compressed before it is stored.
//!
//! As in the kernel: a file's own property comes before the volume's setting; what looks random is not tried;
//! what does not become a sector smaller is stored as it is and the file is not tried again, unless that
//! is forced or the file asks for it by name.

use ubtrfs_format::compress::{self, Compression};
use ubtrfs_format::item::InodeFlags;

use super::options::Compress;

#[cfg(test)]
mod tests;

/// What one file's data goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoder {
    algorithm: Compression,
    level: i32,
    /// Whether also that is tried which looks random.
    force: bool,
    /// Whether the file goes on being tried after a failure.
    keeps_trying: bool,
}

/// What became of a piece of data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Encoded {
    /// Stored as it is.
    Plain,
    /// Stored as it is, and so is the rest of the file from now on.
    Incompressible,
    Compressed(Compression, Vec<u8>),
}

impl Encoder {
    /// `property`: what the file's own setting names.
    pub(super) fn new(
        volume: &Compress,
        flags: InodeFlags,
        property: Option<Compression>,
    ) -> Encoder {
        let none = Encoder {
            algorithm: Compression::None,
            level: 0,
            force: false,
            keeps_trying: false,
        };
        let as_is = InodeFlags::NODATACOW | InodeFlags::NODATASUM | InodeFlags::PREALLOC;
        if flags.intersects(as_is) {
            return none;
        }
        let property = property.filter(|&kind| kind != Compression::None);
        let algorithm = match (property, volume.algorithm) {
            (Some(kind), _) => kind,
            (None, Compression::None) if flags.contains(InodeFlags::COMPRESS) => Compression::Zlib,
            (None, kind) => kind,
        };
        if flags.contains(InodeFlags::NOCOMPRESS) && !volume.force {
            return none;
        }
        Encoder {
            algorithm,
            level: if property.is_some() { 0 } else { volume.level },
            force: volume.force,
            keeps_trying: volume.force || property.is_some(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.algorithm != Compression::None
    }

    /// At most one extent's worth of data.
    pub(super) fn encode(&self, data: &[u8], sectorsize: usize, inline: bool) -> Encoded {
        if !self.is_on() || !(self.force || looks_compressible(data)) {
            return Encoded::Plain;
        }
        let mut stored = Vec::new();
        let made = compress::compress(
            self.algorithm,
            self.level,
            data,
            &mut stored,
            sectorsize,
            inline,
        );
        match made {
            Ok(true) => Encoded::Compressed(self.algorithm, stored),
            Ok(false) if self.keeps_trying || inline => Encoded::Plain,
            Ok(false) => Encoded::Incompressible,
            Err(error) => {
                tracing::warn!(%error, "data is stored as it is");
                Encoded::Plain
            }
        }
    }
}

/// A sample is taken of this many bytes in every interval.
const SAMPLE_BYTES: usize = 16;
const INTERVAL_BYTES: usize = 256;
/// With no more different bytes than this, data compresses.
const FEW_BYTES: usize = 64;
/// If it takes this many different bytes to make up 90 % of the data, it does not.
const MANY_BYTES: usize = 200;
/// Of the 8 bits of entropy that a byte may have, in percent.
const HIGH_ENTROPY_PERCENT: u64 = 80;

/// Guesses from a sample, as cheaply as the kernel does.
fn looks_compressible(data: &[u8]) -> bool {
    let mut sample = Vec::with_capacity(data.len() / INTERVAL_BYTES * SAMPLE_BYTES + SAMPLE_BYTES);
    for interval in data.chunks(INTERVAL_BYTES) {
        sample.extend_from_slice(&interval[..interval.len().min(SAMPLE_BYTES)]);
    }
    let (first, second) = sample.split_at(sample.len() / 2);
    if second.starts_with(first) {
        return true;
    }
    let mut counts = [0u64; 256];
    for &byte in &sample {
        counts[usize::from(byte)] += 1;
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let different = counts.iter().filter(|&&count| count > 0).count();
    if different <= FEW_BYTES {
        return true;
    }
    let total = sample.len() as u64;
    let mut sum = 0;
    let core = counts.iter().take_while(|&&count| {
        let below = sum < total * 9 / 10;
        sum += count;
        below
    });
    let core = core.count();
    if core <= FEW_BYTES {
        return true;
    }
    core < MANY_BYTES && entropy_percent(&counts, total) < HIGH_ENTROPY_PERCENT
}

fn entropy_percent(counts: &[u64; 256], total: u64) -> u64 {
    let bits: f64 = counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| {
            let share = count as f64 / total as f64;
            -share * share.log2()
        })
        .sum();
    (bits * 100.0 / 8.0) as u64
}

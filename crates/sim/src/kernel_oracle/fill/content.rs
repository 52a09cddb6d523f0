//! File contents: all sizes around the limits, compressible and not, with each compression and without copy-on-write.

use std::fs;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_setflags};

use super::{Scale, write};
use crate::error::At;
use crate::{Result, Rng};

/// The compressibility of contents.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Zeros,
    Text,
    Random,
    /// Runs of text and of noise.
    Mixed,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Zeros, Kind::Text, Kind::Random, Kind::Mixed];

    fn name(self) -> &'static str {
        match self {
            Kind::Zeros => "zeros",
            Kind::Text => "text",
            Kind::Random => "random",
            Kind::Mixed => "mixed",
        }
    }
}

const WORDS: [&str; 16] = [
    "extent ",
    "leaf ",
    "node ",
    "key ",
    "chunk ",
    "stripe ",
    "inode ",
    "root ",
    "block ",
    "group ",
    "transaction ",
    "commit ",
    "log ",
    "snapshot ",
    "subvolume ",
    "checksum\n",
];
const RUN_BYTES: usize = 9_000;

pub fn bytes(kind: Kind, len_bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let mut data = Vec::with_capacity(len_bytes + RUN_BYTES);
    while data.len() < len_bytes {
        match kind {
            Kind::Zeros => data.resize(len_bytes, 0),
            Kind::Text => text(&mut data, len_bytes, rng),
            Kind::Random => noise(&mut data, len_bytes, rng),
            Kind::Mixed => {
                let run = data.len() + RUN_BYTES;
                text(&mut data, run, rng);
                let run = data.len() + RUN_BYTES;
                noise(&mut data, run, rng);
            }
        }
    }
    data.truncate(len_bytes);
    data
}

/// Appends sentences, chosen from a few dozen.
fn text(data: &mut Vec<u8>, until: usize, rng: &mut Rng) {
    const SENTENCES: u64 = 48;
    const WORDS_EACH: usize = 9;
    while data.len() < until {
        let mut choice = Rng::new(rng.below(SENTENCES));
        for _ in 0..WORDS_EACH {
            let word = WORDS[choice.below(WORDS.len() as u64) as usize];
            data.extend_from_slice(word.as_bytes());
        }
    }
}

fn noise(data: &mut Vec<u8>, until: usize, rng: &mut Rng) {
    let from = data.len();
    data.resize(until, 0);
    rng.fill(&mut data[from..]);
}

/// Sizes around the limits of inline extents, sectors and compressed extents.
const SIZES: [usize; 20] = [
    0, 1, 2, 100, 2047, 2048, 2049, 3000, 3900, 4095, 4096, 4097, 8191, 8192, 12_289, 65_536,
    131_071, 131_072, 131_073, 262_145,
];

const LARGEST: usize = SIZES[SIZES.len() - 1];

/// Values of the property btrfs.compression; an empty one means the mount's default.
const COMPRESSIONS: [&str; 5] = ["", "zlib", "lzo", "zstd", "none"];

pub(super) fn fill(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    let seed = rng.next_u64();
    for compression in COMPRESSIONS {
        let sub = dir.join(format!("compression-{compression}"));
        fs::create_dir(&sub).at("create", &sub)?;
        if !compression.is_empty() {
            // Files inherit the property from their directory.
            xattr::set(&sub, "btrfs.compression", compression.as_bytes()).at("setxattr", &sub)?;
        }
        // The same bytes for each compression, which allows comparisons and keeps images small.
        sizes(&sub, scale, &mut Rng::new(seed))?;
    }
    if scale.nodatacow {
        nocow(&dir.join("nodatacow"), scale, &mut Rng::new(seed))?;
    }
    Ok(())
}

fn sizes(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    for kind in Kind::ALL {
        // The size of incompressible data is limited only by the scale.
        let noisy = matches!(kind, Kind::Random | Kind::Mixed);
        let most = if noisy { 0 } else { LARGEST };
        let largest = bytes(kind, scale.data_bytes.max(most), rng);
        let sizes = SIZES.into_iter().chain([scale.data_bytes]);
        for size in sizes.filter(|size| *size <= largest.len()) {
            let path = dir.join(format!("{}-{size}", kind.name()));
            write(&path, &largest[..size])?;
        }
    }
    Ok(())
}

fn nocow(dir: &Path, scale: &Scale, rng: &mut Rng) -> Result<()> {
    fs::create_dir(dir).at("create", dir)?;
    let handle = fs::File::open(dir).at("open", dir)?;
    ioctl_setflags(&handle, IFlags::NOCOW).at("set NOCOW", dir)?;
    for kind in [Kind::Text, Kind::Random] {
        for size in [100, 4096, scale.data_bytes] {
            let path = dir.join(format!("{}-{size}", kind.name()));
            write(&path, bytes(kind, size, rng))?;
        }
    }
    Ok(())
}

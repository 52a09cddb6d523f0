//! Compressing data before it is stored.
//!
//! As in the kernel:
//! - A file's own property has priority over the volume's setting.
//! - Data that looks random is not compressed, unless compression is forced.
//! - Data that does not shrink by a sector is stored as it is. Later writes to the file are not compressed
//!   either, unless compression is forced or the file names an algorithm.

use ubtrfs_format::compress::{self, Compression, looks_compressible};
use ubtrfs_format::item::InodeFlags;

use crate::inode::Compress;

#[cfg(test)]
mod tests;

/// The encoder of one file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoder {
    algorithm: Compression,
    level: i32,
    /// Whether data that looks random is compressed too.
    force: bool,
    /// Whether a failure leaves compression on for this file.
    keeps_trying: bool,
}

/// The result of encoding a piece of data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Encoded {
    /// Stored as it is.
    Plain,
    /// Stored as it is, like all later data of the file.
    Incompressible,
    Compressed(Compression, Vec<u8>),
}

impl Encoder {
    /// Creates the encoder of a file with these flags. `property` is the algorithm of the file's own setting.
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

    /// Encodes `data`, at most as much as one extent holds.
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

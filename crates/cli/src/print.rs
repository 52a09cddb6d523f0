//! Superblocks and tree blocks as text, in the layout of btrfs-progs 6.14.
//!
//! These functions only convert bytes to text, so they display any block, even an invalid one. Scripts read
//! this text, so mistakes of btrfs-progs are kept: an owner reference with a stray letter, a subvolume's name
//! that is not escaped.
//!
//! Not here: finding and reading the blocks (`command::inspect_internal`).

mod block;
mod bytes;
mod flags;
mod item;
mod key;
mod superblock;
mod time;

#[cfg(test)]
mod tests;

pub(crate) use block::print_block;
pub(crate) use key::{KeyText, tree_name};
pub(crate) use superblock::{Copy, print_superblock, superblock_json};
pub(crate) use time::IsoTime;

use jiff::tz::TimeZone;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::superblock::Superblock;

/// The displayed parts of a block, and the properties of the volume that its text depends on.
#[derive(Clone, Debug)]
pub(crate) struct PrintOptions {
    pub(crate) csum_type: CsumType,
    pub(crate) sectorsize: u32,
    /// Whether quota status items have an additional number at the end.
    pub(crate) simple_quota: bool,
    /// Hides names of files and attributes, and attribute values.
    pub(crate) hide_names: bool,
    /// Displays the checksums in block headers.
    pub(crate) csum_headers: bool,
    /// Displays the checksums of data.
    pub(crate) csum_items: bool,
    /// Escapes control characters that the layout leaves raw, for a terminal.
    pub(crate) for_terminal: bool,
    /// The time zone of displayed times.
    pub(crate) time_zone: TimeZone,
}

impl PrintOptions {
    /// Creates options for the volume of a validated superblock, with everything else off.
    pub(crate) fn new(superblock: &Superblock) -> PrintOptions {
        PrintOptions {
            csum_type: superblock.csum_type(),
            sectorsize: superblock.sectorsize.get(),
            simple_quota: superblock.incompat().contains(Incompat::SIMPLE_QUOTA),
            hide_names: false,
            csum_headers: false,
            csum_items: false,
            for_terminal: false,
            time_zone: TimeZone::system(),
        }
    }
}

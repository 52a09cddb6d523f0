//! Superblocks and tree blocks as text, in the layout of btrfs-progs 6.14.
//!
//! Pure: bytes in, text out, so that any block can be shown, also one that no check let pass. Scripts read this text, so
//! its slips are kept: an owner reference with a stray letter, a subvolume's name that is not escaped.
//!
//! Not here: finding and reading the blocks (`command::inspect_internal`).

mod block;
mod escape;
mod flags;
mod item;
mod key;
mod superblock;
mod superblock_json;
mod time;

#[cfg(test)]
mod tests;

pub(crate) use block::print_block;
pub(crate) use key::{KeyText, tree_name};
pub(crate) use superblock::{Copy, print_superblock};
pub(crate) use superblock_json::superblock_json;
pub(crate) use time::IsoTime;

use jiff::tz::TimeZone;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::superblock::Superblock;

/// The parts of a block that are shown, and the facts of the volume that its text depends on.
#[derive(Clone, Debug)]
pub(crate) struct PrintOptions {
    pub(crate) csum_type: CsumType,
    pub(crate) sectorsize: u32,
    /// Quota status items end with one more number.
    pub(crate) simple_quota: bool,
    /// Names of files and attributes, and the values of the latter, are not shown.
    pub(crate) hide_names: bool,
    /// The checksums in the headers of blocks.
    pub(crate) csum_headers: bool,
    /// The checksums of data.
    pub(crate) csum_items: bool,
    /// A person reads it: what would steer a terminal is escaped where the layout has it raw.
    pub(crate) for_terminal: bool,
    /// Where times are local.
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

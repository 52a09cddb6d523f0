//! Fields of Synology's DSM, decoded for display.

use std::fmt;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;
use zerocopy::{Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Maker, Marks};
use crate::item::Timespec;
use crate::superblock::{SUPERBLOCK_SIZE, Superblock};

/// The last bytes of the superblock, which mainline keeps zero.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SuperblockEnd {
    pub locker_clock: U64,
    pub rbd_table: U64,
    pub capabilities: [U64; 2],
    /// Metadata reserved for the log tree, in bytes.
    pub log_tree_reserved: U64,
    /// The volume's generation when DSM last wrote to it.
    pub syno_generation: U64,
}
const _: () = assert!(size_of::<SuperblockEnd>() == SUPERBLOCK_SIZE - 4048);

impl SuperblockEnd {
    /// Returns the fields, unless all are zero.
    pub fn of(superblock: &Superblock) -> Option<&SuperblockEnd> {
        let (_, end) = SuperblockEnd::ref_from_suffix(superblock.padding.as_slice()).ok()?;
        end.as_bytes().iter().any(|byte| *byte != 0).then_some(end)
    }
}

/// Returns the build number in a label like `2018.03.12-10:11:12 v23739`, which DSM sets. None: another label.
pub fn label_build(label: &[u8]) -> Option<u32> {
    const FORM: &[u8] = b"0000.00.00-00:00:00 v";
    let (date, build) = label.split_at_checked(FORM.len())?;
    let is_of_form = date.iter().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        _ => byte == form,
    });
    if !is_of_form || !build.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(build).ok()?.parse().ok()
}

/// The attribute with the creation time of a file.
pub const CREATE_TIME: &[u8] = b"syno.create_time";

/// Decodes the value of [`CREATE_TIME`].
pub fn create_time(value: &[u8]) -> Option<Timespec> {
    Timespec::read_from_bytes(value).ok()
}

/// The maker of a volume, as far as its superblock shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadeBy {
    pub maker: Maker,
    /// The build number of the maker's system that made the volume.
    pub build: Option<u32>,
    /// Whether another system has committed to the volume since the maker's system did.
    pub is_written_since: bool,
}

impl MadeBy {
    /// Returns the maker, if the superblock has marks.
    pub fn of(superblock: &Superblock) -> Option<MadeBy> {
        let maker = Marks::of_superblock(superblock).maker()?;
        let end = SuperblockEnd::of(superblock);
        let written = end.map(|end| end.syno_generation.get());
        Some(MadeBy {
            maker,
            build: label_build(superblock.label()),
            is_written_since: written.is_some_and(|it| it != superblock.generation.get()),
        })
    }
}

impl fmt::Display for MadeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.maker.name())?;
        if let Some(build) = self.build {
            write!(f, " build {build}")?;
        }
        if self.is_written_since {
            f.write_str(", written elsewhere since")?;
        }
        Ok(())
    }
}

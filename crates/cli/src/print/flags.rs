//! Sets of flags by name.

use std::fmt;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::maker::Marks;

/// Flag bits, in display order.
pub(super) type Table = &'static [(u64, &'static str)];

/// Displays the names of the set bits between bars, or `none` if no bit has a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    pub(super) bits: u64,
    pub(super) table: Table,
    pub(super) none: &'static str,
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = false;
        for &(bit, name) in self.table {
            if self.bits & bit != 0 {
                if shown {
                    f.write_str("|")?;
                }
                f.write_str(name)?;
                shown = true;
            }
        }
        if shown {
            Ok(())
        } else {
            f.write_str(self.none)
        }
    }
}

/// Returns the names of the flags, and of the flags that only the system of a NAS maker has.
pub(super) fn with_marks(flags: Flags, marks: Marks) -> String {
    let own = Flags { none: "", ..flags }.to_string();
    let own = Some(own).filter(|own| !own.is_empty());
    let names = marks.iter().map(|mark| mark.name.to_owned());
    let names: Vec<String> = own.into_iter().chain(names).collect();
    if names.is_empty() {
        flags.none.to_owned()
    } else {
        names.join("|")
    }
}

/// Returns the bits without a name in a table.
pub(super) fn unknown(bits: u64, table: Table) -> u64 {
    table.iter().fold(bits, |left, (bit, _)| left & !bit)
}

/// "METADATA|DUP", "DATA|METADATA|single".
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkType(pub(super) BlockGroupFlags);

impl fmt::Display for ChunkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, name) in [
            (BlockGroupFlags::DATA, "DATA|"),
            (BlockGroupFlags::METADATA, "METADATA|"),
            (BlockGroupFlags::SYSTEM, "SYSTEM|"),
        ] {
            if self.0.contains(flag) {
                f.write_str(name)?;
            }
        }
        match self.0.profile() {
            Some(profile) => f.write_str(profile.name()),
            None => write!(f, "UNKNOWN.{:#x}", self.0.bits()),
        }
    }
}

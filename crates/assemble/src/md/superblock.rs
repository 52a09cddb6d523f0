//! The superblock of an md member, metadata 1.0, 1.1 and 1.2. Metadata 0.90 has the same fields here (`version0`).
//!
//! Source: `struct mdp_superblock_1` of Linux. All numbers are little-endian, and most lengths are sectors of 512 bytes.

use std::io;
use std::mem::size_of;
use std::ops::Range;

use ubtrfs_device::BlockDevice;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::problem::SuperblockProblem;

pub(crate) const MAGIC: u32 = 0xa92b_4efc;
pub(crate) const SECTOR: u64 = 512;
/// The superblock with its table of roles.
const SUPERBLOCK_BYTES: usize = 4096;
/// The number of roles that have room in it.
pub(crate) const MAX_ROLES: usize = (SUPERBLOCK_BYTES - size_of::<Header>()) / 2;
/// The first role that is not a position in the array.
const ROLE_END: u16 = 0xff00;
pub(crate) const ROLE_SPARE: u16 = 0xffff;
pub(crate) const ROLE_FAULTY: u16 = 0xfffe;
const ROLE_JOURNAL: u16 = 0xfffd;

/// Bits of `feature_map`. Bitmaps and clusters do not matter to a reader.
pub(crate) mod feature {
    pub(crate) const RECOVERY_OFFSET: u32 = 1 << 1;
    pub(crate) const RESHAPE: u32 = 1 << 2;
    pub(crate) const BAD_BLOCKS: u32 = 1 << 3;
    pub(crate) const REPLACEMENT: u32 = 1 << 4;
    pub(crate) const RESHAPE_BACKWARDS: u32 = 1 << 5;
    pub(crate) const NEW_OFFSET: u32 = 1 << 6;
    pub(crate) const JOURNAL: u32 = 1 << 9;
    pub(crate) const PPL: u32 = 1 << 10;
    pub(crate) const MULTIPLE_PPLS: u32 = 1 << 11;
    pub(crate) const RAID0_LAYOUT: u32 = 1 << 12;
    pub(crate) const KNOWN: u32 = (1 << 13) - 1;
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: U32,
    pub(crate) major_version: U32,
    pub(crate) feature_map: U32,
    pub(crate) pad0: U32,
    pub(crate) set_uuid: [u8; 16],
    pub(crate) set_name: [u8; 32],
    pub(crate) ctime: U64,
    pub(crate) level: I32,
    pub(crate) layout: U32,
    pub(crate) size: U64,
    pub(crate) chunksize: U32,
    pub(crate) raid_disks: U32,
    pub(crate) bitmap_offset: U32,
    pub(crate) new_level: I32,
    pub(crate) reshape_position: U64,
    pub(crate) delta_disks: I32,
    pub(crate) new_layout: U32,
    pub(crate) new_chunk: U32,
    pub(crate) new_offset: I32,
    pub(crate) data_offset: U64,
    pub(crate) data_size: U64,
    pub(crate) super_offset: U64,
    /// In a journal, the position of its oldest entry.
    pub(crate) recovery_offset: U64,
    pub(crate) dev_number: U32,
    pub(crate) cnt_corrected_read: U32,
    pub(crate) device_uuid: [u8; 16],
    pub(crate) devflags: u8,
    pub(crate) bblog_shift: u8,
    pub(crate) bblog_size: U16,
    pub(crate) bblog_offset: I32,
    pub(crate) utime: U64,
    pub(crate) events: U64,
    pub(crate) resync_offset: U64,
    pub(crate) sb_csum: U32,
    pub(crate) max_dev: U32,
    pub(crate) pad3: [u8; 32],
}
const _: () = assert!(size_of::<Header>() == 256);

/// The function of a member in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A position in the array.
    Active(usize),
    Spare,
    Faulty,
    Journal,
}

/// A superblock with a valid checksum.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    pub(crate) header: Header,
    roles: Vec<U16>,
    /// Offsets on the member that its list of bad blocks names.
    pub(crate) bad_blocks: Vec<Range<u64>>,
}

impl Superblock {
    /// Reads the superblock at a sector. Returns None without one, or if it names another place.
    pub(super) fn read(
        device: &dyn BlockDevice,
        sector: u64,
    ) -> io::Result<Option<Result<Superblock, SuperblockProblem>>> {
        let offset = sector * SECTOR;
        let len = device.len_bytes().saturating_sub(offset);
        if len < size_of::<Header>() as u64 {
            return Ok(None);
        }
        // Metadata 1.0 of a small member may have fewer bytes behind it.
        let mut block = vec![0; len.min(SUPERBLOCK_BYTES as u64) as usize];
        device.read_at(&mut block, offset)?;
        let Ok((header, rest)) = Header::read_from_prefix(&block) else {
            return Ok(None);
        };
        // The end of a disk is also the end of its last partition.
        let is_here = header.super_offset.get() == sector;
        if header.magic.get() != MAGIC || header.major_version.get() != 1 || !is_here {
            return Ok(None);
        }
        let roles = header.max_dev.get() as usize;
        let Ok((roles, _)) = <[U16]>::ref_from_prefix_with_elems(rest, roles) else {
            let max = MAX_ROLES;
            return Ok(Some(Err(SuperblockProblem::Roles { roles, max })));
        };
        let found = checksum(&header, roles);
        let stored = header.sb_csum.get();
        if found != stored {
            return Ok(Some(Err(SuperblockProblem::Checksum { stored, found })));
        }
        let mut superblock = Superblock {
            roles: roles.to_vec(),
            header,
            bad_blocks: Vec::new(),
        };
        if let Err(problem) = superblock.check() {
            return Ok(Some(Err(problem)));
        }
        superblock.bad_blocks = superblock.read_bad_blocks(device, sector)?;
        Ok(Some(Ok(superblock)))
    }

    /// Creates a superblock from the fields of metadata 0.90, whose lists of bad blocks are empty.
    pub(crate) fn of_version0(header: Header, roles: Vec<U16>) -> Superblock {
        Superblock {
            header,
            roles,
            bad_blocks: Vec::new(),
        }
    }

    /// Returns whether it was metadata 0.90, which does not name its own place.
    pub(crate) fn is_version0(&self) -> bool {
        self.header.major_version.get() == 0
    }

    /// Checks the fields that layers compute with, so that their sums do not overflow.
    pub(crate) fn check(&self) -> Result<(), SuperblockProblem> {
        /// Far above any device, and far below an overflow of its bytes.
        const MAX_SECTORS: u64 = 1 << 50;
        let header = &self.header;
        let lengths = [header.data_offset, header.data_size, header.size];
        if lengths.iter().any(|len| len.get() > MAX_SECTORS) {
            return Err(SuperblockProblem::Lengths);
        }
        let members = header.raid_disks.get() as usize;
        if members == 0 || members > MAX_ROLES {
            let max = MAX_ROLES;
            return Err(SuperblockProblem::Members { members, max });
        }
        Ok(())
    }

    /// Reads the list of bad blocks.
    fn read_bad_blocks(
        &self,
        device: &dyn BlockDevice,
        sector: u64,
    ) -> io::Result<Vec<Range<u64>>> {
        /// The kernel keeps one page of them.
        const MAX_LIST_SECTORS: u64 = 8;
        let header = &self.header;
        let len = u64::from(header.bblog_size.get()).min(MAX_LIST_SECTORS) * SECTOR;
        let start = sector.checked_add_signed(header.bblog_offset.get().into());
        if !self.has(feature::BAD_BLOCKS) || len == 0 || header.bblog_shift > 32 {
            return Ok(Vec::new());
        }
        let start = start.and_then(|start| start.checked_mul(SECTOR));
        let Some(start) = start.filter(|start| start + len <= device.len_bytes()) else {
            return Ok(Vec::new());
        };
        let mut list = vec![0; len as usize];
        device.read_at(&mut list, start)?;
        let (entries, _) = list.as_chunks::<8>();
        let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry));
        let range = |entry: u64| {
            let unit = SECTOR << header.bblog_shift;
            let start = (entry >> 10).saturating_mul(unit);
            start..start.saturating_add((entry & 0x3ff).saturating_mul(unit))
        };
        Ok(entries
            .take_while(|&entry| entry != u64::MAX)
            .map(range)
            .collect())
    }

    pub(crate) fn has(&self, feature: u32) -> bool {
        self.header.feature_map.get() & feature != 0
    }

    /// Returns the role of the device with this number.
    pub(crate) fn role_of(&self, dev_number: u32) -> Role {
        match self.roles.get(dev_number as usize).map(|role| role.get()) {
            Some(role) if role < ROLE_END => Role::Active(role.into()),
            Some(ROLE_FAULTY) => Role::Faulty,
            Some(ROLE_JOURNAL) => Role::Journal,
            _ => Role::Spare,
        }
    }

    /// Returns its own role.
    pub(crate) fn role(&self) -> Role {
        self.role_of(self.header.dev_number.get())
    }

    /// Returns the name of the array, without trailing zeros.
    pub(crate) fn name(&self) -> String {
        let name = self.header.set_name;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    /// Returns the end of the valid data of a member that is being rebuilt, in bytes of its data.
    pub(crate) fn recovered_bytes(&self) -> Option<u64> {
        let sectors = self.header.recovery_offset.get();
        self.has(feature::RECOVERY_OFFSET)
            .then(|| sectors.saturating_mul(SECTOR))
    }

    /// Returns whether all writes had reached all members when the superblock was written.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.header.resync_offset.get() == u64::MAX
    }
}

/// Computes the checksum of a superblock: a sum of words, with its own field as zero.
pub(crate) fn checksum(header: &Header, roles: &[U16]) -> u32 {
    let mut header = header.clone();
    header.sb_csum = 0.into();
    let bytes = [header.as_bytes(), roles.as_bytes()].concat();
    folded_sum(&bytes)
}

/// Adds the words of a superblock, and the carries once more.
pub(crate) fn folded_sum(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_le_bytes(*word)))
        .sum();
    let tail = match tail {
        [low, high] => u16::from_le_bytes([*low, *high]),
        _ => 0,
    };
    let sum = sum + u64::from(tail);
    // The carries are added once, as in the kernel.
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

//! Metadata 0.90: a superblock in the last whole 64 KiB of a member, whose data is at its start.
//!
//! Source: `struct mdp_superblock_s` of Linux. It is an array of 32-bit words in the byte order of the machine: only
//! little-endian ones are read. It does not name its own place, so a disk and its last partition may seem to have the
//! same superblock (`assembly::holders`).

use std::io;
use std::mem::size_of;

use ubtrfs_device::BlockDevice;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::problem::SuperblockProblem;
use super::superblock::{
    Header, MAGIC, ROLE_FAULTY, ROLE_SPARE, SECTOR, Superblock, feature, folded_sum,
};

/// The place of the superblock is a multiple of this.
const RESERVED_BYTES: u64 = 64 << 10;
/// The number of descriptors.
const MAX_MEMBERS: usize = 27;
const SUPERBLOCK_BYTES: usize = 4096;
/// All writes had reached all members.
const STATE_CLEAN: u32 = 1;
/// The minor version while an array is being reshaped.
const RESHAPING: u32 = 91;

/// Bits of a descriptor's state.
mod disk_state {
    pub(super) const FAULTY: u32 = 1 << 0;
    pub(super) const SYNC: u32 = 1 << 2;
    pub(super) const WRITE_MOSTLY: u32 = 1 << 9;
}

/// The description of a member.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Descriptor {
    number: U32,
    major: U32,
    minor: U32,
    raid_disk: U32,
    state: U32,
    reserved: [U32; 27],
}
const _: () = assert!(size_of::<Descriptor>() == 128);

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Words {
    magic: U32,
    major_version: U32,
    minor_version: U32,
    patch_version: U32,
    gvalid_words: U32,
    set_uuid0: U32,
    ctime: U32,
    level: U32,
    /// In KiB.
    size: U32,
    nr_disks: U32,
    raid_disks: U32,
    md_minor: U32,
    not_persistent: U32,
    set_uuid1: U32,
    set_uuid2: U32,
    set_uuid3: U32,
    reserved0: [U32; 16],
    utime: U32,
    state: U32,
    active_disks: U32,
    working_disks: U32,
    failed_disks: U32,
    spare_disks: U32,
    sb_csum: U32,
    events: U64,
    cp_events: U64,
    recovery_cp: U32,
    reshape_position: U64,
    new_level: U32,
    delta_disks: U32,
    new_layout: U32,
    new_chunk: U32,
    reserved1: [U32; 14],
    layout: U32,
    /// In bytes.
    chunk_size: U32,
    reserved2: [U32; 62],
    disks: [Descriptor; MAX_MEMBERS],
    this_disk: Descriptor,
}
const _: () = assert!(size_of::<Words>() == SUPERBLOCK_BYTES);

/// Returns the place of the superblock on a device.
pub(crate) fn place(len_bytes: u64) -> Option<u64> {
    (len_bytes & !(RESERVED_BYTES - 1)).checked_sub(RESERVED_BYTES)
}

/// Reads the superblock of a device, in the form of later versions. Returns None without one.
pub(crate) fn read(
    device: &dyn BlockDevice,
) -> io::Result<Option<Result<Superblock, SuperblockProblem>>> {
    let Some(offset) = place(device.len_bytes()) else {
        return Ok(None);
    };
    let mut words = Words::new_zeroed();
    device.read_at(words.as_mut_bytes(), offset)?;
    if words.magic.get() != MAGIC || words.major_version.get() != 0 {
        return Ok(None);
    }
    Ok(Some(words.decode(offset)))
}

impl Words {
    fn decode(self, offset: u64) -> Result<Superblock, SuperblockProblem> {
        let stored = self.sb_csum.get();
        let found = self.checksum();
        if found != stored {
            return Err(SuperblockProblem::Checksum { stored, found });
        }
        let members = self.raid_disks.get() as usize;
        if members > MAX_MEMBERS {
            let max = MAX_MEMBERS;
            return Err(SuperblockProblem::Members { members, max });
        }
        let superblock = Superblock::of_version0(self.header(offset), self.roles());
        superblock.check()?;
        Ok(superblock)
    }

    /// Translates the fields to metadata 1.
    fn header(&self, offset: u64) -> Header {
        let mut header = Header::new_zeroed();
        header.magic = self.magic;
        let uuid = [
            self.set_uuid0,
            self.set_uuid1,
            self.set_uuid2,
            self.set_uuid3,
        ];
        header.set_uuid.copy_from_slice(uuid.as_bytes());
        // Such arrays have a number instead of a name.
        let name = format!("md{}", self.md_minor);
        header.set_name[..name.len()].copy_from_slice(name.as_bytes());
        header.level = self.level.get().cast_signed().into();
        header.layout = self.layout;
        header.size = (u64::from(self.size.get()) * 2).into();
        header.chunksize = (self.chunk_size.get() / SECTOR as u32).into();
        header.raid_disks = self.raid_disks;
        header.data_size = (offset / SECTOR).into();
        header.super_offset = (offset / SECTOR).into();
        header.dev_number = self.this_disk.number;
        header.events = self.events;
        let is_clean = self.state.get() & STATE_CLEAN != 0;
        header.resync_offset = if is_clean { u64::MAX } else { 0 }.into();
        let own = self.disks.get(self.this_disk.number.get() as usize);
        let is_write_mostly =
            own.is_some_and(|own| own.state.get() & disk_state::WRITE_MOSTLY != 0);
        header.devflags = u8::from(is_write_mostly);
        if self.minor_version.get() == RESHAPING {
            header.feature_map = feature::RESHAPE.into();
        }
        header
    }

    /// Returns the role of each descriptor. A member that is not in sync has no valid data.
    fn roles(&self) -> Vec<U16> {
        let role = |disk: &Descriptor| {
            let (state, role) = (disk.state.get(), disk.raid_disk.get());
            match u16::try_from(role) {
                _ if state & disk_state::FAULTY != 0 => ROLE_FAULTY,
                Ok(role) if state & disk_state::SYNC != 0 => role,
                _ => ROLE_SPARE,
            }
        };
        self.disks.iter().map(|disk| role(disk).into()).collect()
    }

    /// Computes the checksum, with its own field as zero.
    fn checksum(&self) -> u32 {
        let mut words = self.clone();
        words.sb_csum = 0.into();
        folded_sum(words.as_bytes())
    }
}

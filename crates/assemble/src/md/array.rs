//! An array of the members that were found.
//!
//! Invariants
//! - MD-1: a member whose events are more than one below the newest is never read, as in the kernel.
//! - MD-2: the newest superblock decides about roles: a member that it does not name in its own role is never read.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use super::logs::{is_journal_empty, is_ppl_empty};
use super::problem::{ArrayNote, ArrayProblem, LeftOut};
use super::superblock::{Role, SECTOR, Superblock, feature};
use crate::concat::{Concat, Piece};
use crate::mapping::ReadOnly;
use crate::mirrored::Mirrored;
use crate::parity_array::ParityArray;
use crate::parity_layout::ParityLayout;
use crate::raid10::{Raid10, Raid10Layout};
use crate::striped::{Column, Striped};
use crate::window::Window;

/// Chunks above this size are not plausible.
const MAX_CHUNK_SECTORS: u32 = 1 << 21;
const WRITE_MOSTLY: u8 = 1;

/// A device with a superblock.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) superblock: Superblock,
}

/// An array, as far as its members were found.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) level: i32,
    pub(crate) chunk_bytes: u64,
    /// The index of the member for each role.
    pub(crate) roles: Vec<Option<usize>>,
    /// Other members by index.
    pub(crate) left_out: Vec<(usize, LeftOut)>,
    pub(crate) notes: Vec<ArrayNote>,
    pub(crate) device: Result<Arc<dyn BlockDevice>, ArrayProblem>,
}

impl Array {
    /// Assembles the members of one array. There must be at least one.
    pub(crate) fn assemble(members: &[Member]) -> Array {
        let chosen = Chosen::of(members);
        let newest = &members[chosen.newest].superblock;
        let mut notes = Vec::new();
        for (role, member) in chosen.roles.iter().enumerate() {
            let Some(superblock) = member.map(|member| &members[member].superblock) else {
                continue;
            };
            if let Some(valid_bytes) = superblock.recovered_bytes() {
                notes.push(ArrayNote::BeingRebuilt { role, valid_bytes });
            }
            let count = superblock.bad_blocks.len();
            if count > 0 {
                notes.push(ArrayNote::BadBlocks { role, count });
            }
        }
        let level = newest.header.level.get();
        let is_degraded = chosen.roles.iter().any(Option::is_none);
        // A partial parity log without entries means that nothing was being written.
        let has_log = newest.has(feature::PPL | feature::MULTIPLE_PPLS);
        if is_degraded && !newest.is_in_sync() && matches!(level, 4..=6) && !has_log {
            notes.push(ArrayNote::NotStopped);
        }
        let builder = Builder {
            members,
            newest,
            roles: &chosen.roles,
        };
        Array {
            name: newest.name(),
            level,
            chunk_bytes: u64::from(newest.header.chunksize.get()) * SECTOR,
            device: builder.device(),
            roles: chosen.roles,
            left_out: chosen.left_out,
            notes,
        }
    }
}

/// The members that are used.
struct Chosen {
    newest: usize,
    roles: Vec<Option<usize>>,
    left_out: Vec<(usize, LeftOut)>,
}

impl Chosen {
    fn of(members: &[Member]) -> Chosen {
        let events = |member: &Member| member.superblock.header.events.get();
        let is_active = |member: &Member| matches!(member.superblock.role(), Role::Active(_));
        // The first among equals; a spare may be newest in an array without active members.
        let newest = (0..members.len())
            .rev()
            .max_by_key(|&index| (is_active(&members[index]), events(&members[index])))
            .unwrap_or(0);
        let authority = &members[newest].superblock;
        let count = authority.header.raid_disks.get() as usize;
        let mut chosen = Chosen {
            newest,
            roles: vec![None; count],
            left_out: Vec::new(),
        };
        for (index, member) in members.iter().enumerate() {
            if let Err(reason) = chosen.take(index, members, member) {
                chosen.left_out.push((index, reason));
            }
        }
        chosen
    }

    /// Uses a member, or returns why it is left out.
    fn take(&mut self, index: usize, members: &[Member], member: &Member) -> Result<(), LeftOut> {
        let newest = &members[self.newest].superblock;
        let (own, authority) = (&member.superblock.header, &newest.header);
        let role = match member.superblock.role() {
            Role::Active(role) => role,
            Role::Spare => return Err(LeftOut::Spare),
            Role::Faulty => return Err(LeftOut::Faulty),
            Role::Journal => return Err(LeftOut::Journal),
        };
        let (events, newest_events) = (own.events.get(), authority.events.get());
        // MD-1
        if events.saturating_add(1) < newest_events {
            return Err(LeftOut::Stale {
                events,
                newest: newest_events,
            });
        }
        // MD-2
        match newest.role_of(own.dev_number.get()) {
            Role::Active(named) if named == role => {}
            Role::Active(_) => return Err(LeftOut::Different),
            _ => return Err(LeftOut::Faulty),
        }
        let shape =
            |s: &super::superblock::Header| (s.level, s.layout, s.size, s.chunksize, s.raid_disks);
        if shape(own) != shape(authority) || role >= self.roles.len() {
            return Err(LeftOut::Different);
        }
        let (data_size, size) = (own.data_size.get(), own.size.get());
        if data_size < size {
            return Err(LeftOut::TooSmall { data_size, size });
        }
        match self.roles[role] {
            None => {}
            Some(other) => {
                let is_replacement =
                    |index: usize| members[index].superblock.has(feature::REPLACEMENT);
                if is_replacement(index) || !is_replacement(other) {
                    return Err(LeftOut::Duplicate { role });
                }
                // A replacement has valid data only as far as it was copied.
                self.left_out.push((other, LeftOut::Duplicate { role }));
            }
        }
        self.roles[role] = Some(index);
        Ok(())
    }
}

/// Builds the device of an array.
struct Builder<'a> {
    members: &'a [Member],
    newest: &'a Superblock,
    roles: &'a [Option<usize>],
}

impl Builder<'_> {
    fn device(&self) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        self.check_features()?;
        let header = &self.newest.header;
        let level = header.level.get();
        match level {
            -1 => self.linear(),
            0 => self.raid0(),
            1 => self.raid1(),
            4..=6 => self.parity(level),
            10 => self.raid10(),
            level => Err(ArrayProblem::Level(level)),
        }
    }

    fn check_features(&self) -> Result<(), ArrayProblem> {
        let used = self.roles.iter().flatten();
        let superblocks = || used.clone().map(|&member| &self.members[member].superblock);
        let any = |bits: u32| self.newest.has(bits) || superblocks().any(|s| s.has(bits));
        let unknown = superblocks().fold(0, |bits, s| bits | s.header.feature_map.get());
        let unknown = unknown & !feature::KNOWN;
        if unknown != 0 {
            return Err(ArrayProblem::Features(unknown));
        }
        if any(feature::RESHAPE | feature::RESHAPE_BACKWARDS | feature::NEW_OFFSET) {
            return Err(ArrayProblem::Reshape);
        }
        if any(feature::JOURNAL) {
            self.check_journal()?;
        }
        let is_degraded = self.present() < self.roles.len();
        let has_log = any(feature::PPL | feature::MULTIPLE_PPLS);
        if has_log && is_degraded && !self.newest.is_in_sync() && !self.are_ppls_empty() {
            return Err(ArrayProblem::DirtyPpl);
        }
        Ok(())
    }

    /// Accepts a journal that is as new as the members, and known to be empty.
    fn check_journal(&self) -> Result<(), ArrayProblem> {
        let is_journal = |member: &&Member| member.superblock.role() == Role::Journal;
        let newest = self.newest.header.events.get();
        let is_fresh =
            |member: &&Member| member.superblock.header.events.get().saturating_add(1) >= newest;
        let mut journals = self.members.iter().filter(is_journal).filter(is_fresh);
        let Some(journal) = journals.next() else {
            return Err(ArrayProblem::JournalMissing);
        };
        match is_journal_empty(&*journal.device, &journal.superblock) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(ArrayProblem::Journal),
        }
    }

    /// Returns whether no member has partial parity. The log of a stripe is on the member with its parity. If that one is
    /// missing, its data is complete.
    fn are_ppls_empty(&self) -> bool {
        let mut present = self.roles.iter().flatten();
        present.all(|&member| {
            let Member { device, superblock } = &self.members[member];
            is_ppl_empty(&**device, superblock).unwrap_or(false)
        })
    }

    fn present(&self) -> usize {
        self.roles.iter().flatten().count()
    }

    fn require(&self, needed: usize) -> Result<(), ArrayProblem> {
        let present = self.present();
        if present < needed {
            let members = self.roles.len();
            return Err(ArrayProblem::TooFew {
                present,
                members,
                needed,
            });
        }
        Ok(())
    }

    fn chunk_sectors(&self) -> Result<u64, ArrayProblem> {
        let sectors = self.newest.header.chunksize.get();
        if sectors == 0 || !sectors.is_multiple_of(8) || sectors > MAX_CHUNK_SECTORS {
            return Err(ArrayProblem::Chunk { sectors });
        }
        Ok(sectors.into())
    }

    /// Returns the data of a member, `sectors` long.
    fn data(&self, member: usize, sectors: u64) -> Arc<dyn BlockDevice> {
        let Member { device, superblock } = &self.members[member];
        let start = superblock.header.data_offset.get() * SECTOR;
        let len = sectors * SECTOR;
        let bad = superblock.bad_blocks.iter().filter_map(|bad| {
            let range = bad.start.saturating_sub(start)..bad.end.saturating_sub(start);
            (!range.is_empty()).then_some(range)
        });
        let invalid = superblock.recovered_bytes().map(|end| end..u64::MAX);
        Window::open(Arc::clone(device), start, len, bad.chain(invalid))
    }

    /// Returns the data of all members, of the size that they have in common.
    fn all_data(&self) -> Vec<Option<Arc<dyn BlockDevice>>> {
        let size = self.newest.header.size.get();
        let data = |member: &Option<usize>| member.map(|member| self.data(member, size));
        self.roles.iter().map(data).collect()
    }

    /// Returns the data of all members with their sectors, rounded down to chunks, for an array without redundancy.
    fn own_data(&self, chunk_sectors: u64) -> Result<Vec<Column>, ArrayProblem> {
        self.require(self.roles.len())?;
        let members = self.roles.iter().flatten();
        let data = members.map(|&member| {
            let sectors = self.members[member].superblock.header.data_size.get();
            let sectors = sectors - sectors % chunk_sectors;
            (self.data(member, sectors), sectors)
        });
        Ok(data.collect())
    }

    fn linear(&self) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        let rounding = u64::from(self.newest.header.chunksize.get()).max(1);
        let pieces = self
            .own_data(rounding)?
            .into_iter()
            .map(|(device, sectors)| Piece {
                device,
                offset: 0,
                len: sectors * SECTOR,
            });
        let concat = Concat::new(pieces.collect()).ok_or(ArrayProblem::Size)?;
        Ok(Arc::new(ReadOnly(concat)))
    }

    /// Builds RAID0. Members of different sizes form zones: a zone ends with its smallest member.
    fn raid0(&self) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        /// Linux before 3.14 counted the chunks of all zones from the start of the array.
        const COUNTED_FROM_START: u32 = 1;
        let chunk = self.chunk_sectors()?;
        let data = self.own_data(chunk)?;
        let layout = if self.newest.has(feature::RAID0_LAYOUT) {
            self.newest.header.layout.get()
        } else {
            0
        };
        if layout > 2 {
            return Err(ArrayProblem::Layout { level: 0, layout });
        }
        let mut ends: Vec<u64> = data.iter().map(|(_, sectors)| *sectors).collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut start, mut zone_start) = (0, 0u64);
        let mut zones = Vec::new();
        for end in ends {
            let columns: Vec<_> = data
                .iter()
                .filter(|(_, sectors)| *sectors > start)
                .map(|(device, _)| (Arc::clone(device), start * SECTOR))
                .collect();
            let first = match layout {
                COUNTED_FROM_START => zone_start,
                _ => 0,
            };
            let rows = (end - start) / chunk;
            if rows > 0 {
                zone_start += rows * columns.len() as u64;
                let zone = Striped::new(columns, chunk * SECTOR, rows, first);
                let zone = ReadOnly(zone.ok_or(ArrayProblem::Size)?);
                let len = ubtrfs_device::BlockDevice::len_bytes(&zone);
                zones.push(Piece {
                    device: Arc::new(zone),
                    offset: 0,
                    len,
                });
            }
            start = end;
        }
        let concat = Concat::new(zones).ok_or(ArrayProblem::Size)?;
        Ok(Arc::new(ReadOnly(concat)))
    }

    fn raid1(&self) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        self.require(1)?;
        let len_bytes = self.newest.header.size.get() * SECTOR;
        // Slow members, and those without all data, are the last ones.
        let mut members: Vec<usize> = self.roles.iter().flatten().copied().collect();
        members.sort_by_key(|&member| {
            let superblock = &self.members[member].superblock;
            let is_partial = superblock.recovered_bytes().is_some();
            (is_partial, superblock.header.devflags & WRITE_MOSTLY)
        });
        let size = self.newest.header.size.get();
        let data = members
            .into_iter()
            .map(|member| Some(self.data(member, size)));
        Ok(Arc::new(ReadOnly(Mirrored {
            members: data.collect(),
            len_bytes,
        })))
    }

    fn parity(&self, level: i32) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        let chunk = self.chunk_sectors()?;
        let layout = self.newest.header.layout.get();
        let members = self.roles.len();
        let unknown = ArrayProblem::Layout { level, layout };
        let layout = ParityLayout::decode(level, layout, members).ok_or(unknown)?;
        self.require(layout.data())?;
        let rows = self.newest.header.size.get() / chunk;
        let row_sectors = chunk * layout.data() as u64;
        let bytes = rows
            .checked_mul(row_sectors)
            .and_then(|sectors| sectors.checked_mul(SECTOR));
        bytes.ok_or(ArrayProblem::Size)?;
        Ok(Arc::new(ReadOnly(ParityArray {
            members: self.all_data(),
            layout,
            chunk_bytes: chunk * SECTOR,
            rows,
        })))
    }

    fn raid10(&self) -> Result<Arc<dyn BlockDevice>, ArrayProblem> {
        let chunk = self.chunk_sectors()?;
        let layout = self.newest.header.layout.get();
        let members = self.roles.len();
        let unknown = ArrayProblem::Layout { level: 10, layout };
        let layout = Raid10Layout::decode(layout, members as u64).ok_or(unknown)?;
        let member_bytes = self.newest.header.size.get() * SECTOR;
        let array = Raid10::new(self.all_data(), layout, chunk * SECTOR, member_bytes);
        let array = array.ok_or(ArrayProblem::Size)?;
        if !array.is_complete() {
            let present = self.present();
            return Err(ArrayProblem::Incomplete { present, members });
        }
        Ok(Arc::new(ReadOnly(array)))
    }
}

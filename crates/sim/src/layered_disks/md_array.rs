//! Members of md arrays.

use std::ops::Range;

const SECTOR: u64 = 512;
/// The bytes before the data, with metadata 1.1 and 1.2.
const DATA_OFFSET: u64 = 64 << 10;
/// The bytes behind the data, with metadata 1.0.
const TAIL_BYTES: u64 = 16 << 10;
const ROLES: usize = 384;
/// The superblock of metadata 0.90 is at a multiple of this.
const VERSION0_BYTES: u64 = 64 << 10;

/// Where the superblock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdMetadata {
    /// Version 0.90.
    Version0,
    /// Version 1.0.
    End,
    /// Version 1.1.
    Start,
    /// Version 1.2.
    AfterStart,
}

/// An md array to write.
#[derive(Clone, Debug)]
pub struct MdArray {
    /// -1 is linear.
    pub level: i32,
    pub layout: u32,
    pub chunk_bytes: u64,
    pub members: usize,
    pub metadata: MdMetadata,
    pub name: String,
    /// Distinguishes arrays.
    pub number: u8,
    /// The size of each member in chunks, for arrays whose members differ.
    pub sizes: Vec<u64>,
}

impl MdArray {
    pub fn new(level: i32, layout: u32, members: usize) -> MdArray {
        MdArray {
            level,
            layout,
            chunk_bytes: 64 << 10,
            members,
            metadata: MdMetadata::AfterStart,
            name: format!("nas:{level}"),
            number: 1,
            sizes: Vec::new(),
        }
    }

    /// Returns the members of an array that holds `content`, followed by zeros.
    pub fn write(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let data = match self.level {
            -1 | 0 => self.unequal(content),
            1 => vec![content.to_vec(); self.members],
            4..=6 => self.rows(content),
            10 => self.copies(content),
            level => panic!("no writer for level {level}"),
        };
        self.members_with(data)
    }

    /// Returns members with this data, in the order of their roles.
    pub fn members_with(&self, data: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let members = data.into_iter().enumerate();
        members
            .map(|(role, data)| self.member(role, &data))
            .collect()
    }

    /// Returns the range of a member's data.
    pub fn data_range(&self, member: &[u8]) -> Range<usize> {
        match self.metadata {
            MdMetadata::Version0 => 0..self.superblock_range(member).start,
            MdMetadata::End => 0..member.len() - TAIL_BYTES as usize,
            _ => DATA_OFFSET as usize..member.len(),
        }
    }

    /// Returns the range of the superblock.
    pub fn superblock_range(&self, member: &[u8]) -> Range<usize> {
        let start = match self.metadata {
            MdMetadata::Version0 => {
                let place = (member.len() as u64 & !(VERSION0_BYTES - 1)) - VERSION0_BYTES;
                return place as usize..place as usize + 4096;
            }
            MdMetadata::End => (((member.len() as u64 / SECTOR - 16) & !7) * SECTOR) as usize,
            MdMetadata::Start => 0,
            MdMetadata::AfterStart => 4096,
        };
        start..start + 256 + 2 * ROLES
    }

    /// Changes the superblock of a member, and corrects its checksum.
    pub fn edit(&self, member: &mut [u8], change: impl FnOnce(&mut [u8])) {
        let range = self.superblock_range(member);
        change(&mut member[range.clone()]);
        seal_md(&mut member[range]);
    }

    /// Returns a member with metadata 0.90, which is 1024 words. Words 128 to 991 describe the disks, and the last 32
    /// the member itself.
    fn member_of_version0(&self, role: usize, data: &[u8]) -> Vec<u8> {
        let mut member = data.to_vec();
        member.resize(data.len().next_multiple_of(VERSION0_BYTES as usize), 0);
        let kib = member.len() / 1024;
        member.resize(member.len() + VERSION0_BYTES as usize, 0);
        let range = self.superblock_range(&member);
        let superblock = &mut member[range];
        let mut put = |word: usize, value: u32| {
            superblock[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
        };
        let count = self.members as u32;
        put(0, 0xa92b_4efc);
        put(2, 90);
        for word in [5, 13, 14, 15] {
            put(word, u32::from(self.number) * 0x0101_0101);
        }
        put(6, 1_500_000_000);
        put(7, self.level.cast_unsigned());
        put(8, if self.level > 0 { kib as u32 } else { 0 });
        put(9, count);
        put(10, count);
        put(11, self.number.into());
        put(32, 1_500_000_001);
        // Clean.
        put(33, 1);
        put(34, count);
        put(35, count);
        put(39, 42);
        put(41, 42);
        put(64, self.layout);
        put(
            65,
            if self.level == 1 {
                0
            } else {
                self.chunk_bytes as u32
            },
        );
        let disks = (0..self.members).map(|disk| (128 + 32 * disk, disk as u32));
        for (word, disk) in disks.chain([(992, role as u32)]) {
            put(word, disk);
            put(word + 1, 8);
            put(word + 2, 16 * disk + 1);
            put(word + 3, disk);
            // Active and in sync.
            put(word + 4, 6);
        }
        seal_md(superblock);
        member
    }

    fn member(&self, role: usize, data: &[u8]) -> Vec<u8> {
        if self.metadata == MdMetadata::Version0 {
            return self.member_of_version0(role, data);
        }
        let (before, after) = match self.metadata {
            MdMetadata::End => (0, TAIL_BYTES),
            _ => (DATA_OFFSET, 0),
        };
        let mut member = vec![0; before as usize];
        member.extend_from_slice(data);
        member.resize(member.len() + after as usize, 0);
        let range = self.superblock_range(&member);
        let offset = range.start as u64 / SECTOR;
        let sectors = data.len() as u64 / SECTOR;
        let superblock = &mut member[range];
        let mut put =
            |at: usize, bytes: &[u8]| superblock[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &0xa92b_4efc_u32.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        // The bit marks the layout of RAID0 as valid.
        let feature_map: u32 = if self.level == 0 && self.layout != 0 {
            1 << 12
        } else {
            0
        };
        put(8, &feature_map.to_le_bytes());
        put(16, &[self.number; 16]);
        put(32, self.name.as_bytes());
        put(64, &1_500_000_000_u64.to_le_bytes());
        put(72, &self.level.to_le_bytes());
        put(76, &self.layout.to_le_bytes());
        let size = if self.level > 0 { sectors } else { 0 };
        put(80, &size.to_le_bytes());
        let chunk = if self.level == 1 {
            0
        } else {
            self.chunk_bytes / SECTOR
        };
        put(88, &(chunk as u32).to_le_bytes());
        put(92, &(self.members as u32).to_le_bytes());
        put(128, &(before / SECTOR).to_le_bytes());
        put(136, &sectors.to_le_bytes());
        put(144, &offset.to_le_bytes());
        put(160, &(role as u32).to_le_bytes());
        put(168, &[role as u8 + 100; 16]);
        put(192, &1_500_000_001_u64.to_le_bytes());
        put(200, &42_u64.to_le_bytes());
        put(208, &u64::MAX.to_le_bytes());
        put(220, &(ROLES as u32).to_le_bytes());
        for other in 0..ROLES {
            let role = if other < self.members {
                other as u16
            } else {
                0xffff
            };
            put(256 + 2 * other, &role.to_le_bytes());
        }
        seal_md(superblock);
        member
    }

    fn chunks<'a>(&self, content: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        content.chunks(self.chunk_bytes as usize)
    }

    /// Copies a chunk to its place on a member, which is extended.
    fn put_chunk(&self, member: &mut Vec<u8>, chunk_number: u64, chunk: &[u8]) {
        let start = (chunk_number * self.chunk_bytes) as usize;
        let end = start + self.chunk_bytes as usize;
        if member.len() < end {
            member.resize(end, 0);
        }
        member[start..start + chunk.len()].copy_from_slice(chunk);
    }

    /// Fills members that may differ, for linear and RAID0. Follows `create_strip_zones` and `map_sector`.
    fn unequal(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let count = content.len().div_ceil(self.chunk_bytes as usize) as u64;
        let equal = vec![count.div_ceil(self.members as u64); self.members];
        let sizes = if self.sizes.is_empty() {
            &equal
        } else {
            &self.sizes
        };
        let bytes = |size: &u64| vec![0; (size * self.chunk_bytes) as usize];
        let mut members: Vec<Vec<u8>> = sizes.iter().map(bytes).collect();
        for (number, chunk) in (0_u64..).zip(self.chunks(content)) {
            if self.level == -1 {
                let mut at = number;
                let mut member = 0;
                while at >= sizes[member] {
                    at -= sizes[member];
                    member += 1;
                }
                self.put_chunk(&mut members[member], at, chunk);
                continue;
            }
            let (mut start, mut before) = (0, 0);
            loop {
                let in_zone: Vec<usize> = (0..self.members).filter(|&m| sizes[m] > start).collect();
                let end = in_zone
                    .iter()
                    .map(|&m| sizes[m])
                    .min()
                    .expect("room for the content");
                let zone_chunks = (end - start) * in_zone.len() as u64;
                let width = in_zone.len() as u64;
                if number - before < zone_chunks {
                    let within = number - before;
                    let turn = if self.layout == 1 { number } else { within };
                    let member = in_zone[(turn % width) as usize];
                    self.put_chunk(&mut members[member], start + within / width, chunk);
                    break;
                }
                before += zone_chunks;
                start = end;
            }
        }
        members
    }

    /// Fills the members of RAID4, 5 and 6. Follows `raid5_compute_sector`.
    fn rows(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let disks = self.members;
        let data_disks = disks - if self.level == 6 { 2 } else { 1 };
        let chunk_bytes = self.chunk_bytes as usize;
        let mut members = vec![Vec::new(); disks];
        for (row, part) in content.chunks(chunk_bytes * data_disks).enumerate() {
            let mut part = part.to_vec();
            part.resize(chunk_bytes * data_disks, 0);
            let (mut pd, mut qd) = (0, None);
            for (index, chunk) in part.chunks(chunk_bytes).enumerate() {
                let dd;
                (dd, pd, qd) = self.compute_sector(row, index);
                self.put_chunk(&mut members[dd], row as u64, chunk);
            }
            let start = row * chunk_bytes;
            let mut p = vec![0; chunk_bytes];
            let mut q = vec![0; chunk_bytes];
            // As in raid6_d0: the sum of Q begins behind Q.
            let first = qd.map_or(0, |qd| (qd + 1) % disks);
            let mut weight = 1;
            for step in 0..disks {
                let disk = (first + step) % disks;
                if disk == pd || Some(disk) == qd {
                    continue;
                }
                for (at, &byte) in members[disk][start..start + chunk_bytes].iter().enumerate() {
                    p[at] ^= byte;
                    if self.level == 6 {
                        q[at] ^= multiply(byte, weight);
                    }
                }
                weight = multiply(weight, 2);
            }
            self.put_chunk(&mut members[pd], row as u64, &p);
            if let Some(qd) = qd {
                self.put_chunk(&mut members[qd], row as u64, &q);
            }
        }
        members
    }

    /// Returns the disks of data chunk `dd` of a row, of P and of Q.
    fn compute_sector(&self, row: usize, mut dd: usize) -> (usize, usize, Option<usize>) {
        let disks = self.members;
        if self.level != 6 {
            let data_disks = disks - 1;
            let layout = if self.level == 4 { 5 } else { self.layout };
            let pd = match layout {
                0 | 2 => data_disks - row % disks,
                1 | 3 => row % disks,
                4 => 0,
                _ => data_disks,
            };
            match layout {
                2 | 3 => dd = (pd + 1 + dd) % disks,
                _ if dd >= pd => dd += 1,
                _ => {}
            }
            return (dd, pd, None);
        }
        let data_disks = disks - 2;
        match self.layout {
            0 | 1 => {
                let turn = row % disks;
                let pd = if self.layout == 0 {
                    disks - 1 - turn
                } else {
                    turn
                };
                if pd == disks - 1 {
                    return (dd + 1, pd, Some(0));
                }
                let dd = if dd >= pd { dd + 2 } else { dd };
                (dd, pd, Some(pd + 1))
            }
            2 | 3 => {
                let turn = row % disks;
                let pd = if self.layout == 2 {
                    disks - 1 - turn
                } else {
                    turn
                };
                ((pd + 2 + dd) % disks, pd, Some((pd + 1) % disks))
            }
            4 => (dd + 2, 0, Some(1)),
            5 => (dd, data_disks, Some(data_disks + 1)),
            16..=19 => {
                let turn = row % (disks - 1);
                let pd = if self.layout.is_multiple_of(2) {
                    data_disks - turn
                } else {
                    turn
                };
                let dd = match self.layout {
                    16 | 17 if dd >= pd => dd + 1,
                    16 | 17 => dd,
                    _ => (pd + 1 + dd) % (disks - 1),
                };
                (dd, pd, Some(disks - 1))
            }
            _ => (dd + 1, 0, Some(disks - 1)),
        }
    }

    /// Fills the members of RAID10. Follows `__raid10_find_phys`.
    fn copies(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let disks = self.members as u64;
        let (near, far) = (
            u64::from(self.layout & 0xff),
            u64::from(self.layout >> 8 & 0xff),
        );
        let is_offset = self.layout & 1 << 16 != 0;
        let far_set = match self.layout >> 17 {
            0 => disks,
            1 => disks / far,
            _ => far * near,
        };
        let last_start = (disks / far_set - 1) * far_set;
        let last_size = far_set + disks % far_set;
        let chunks = content.len().div_ceil(self.chunk_bytes as usize) as u64;
        // A few chunks more, so that the size of the array is not limited by the rounding of the last row.
        let per_section = (chunks * near).div_ceil(disks) + 1;
        let stride = if is_offset { 1 } else { per_section };
        let size = (per_section * far * self.chunk_bytes) as usize;
        let mut members = vec![vec![0; size]; self.members];
        for (number, chunk) in (0_u64..).zip(self.chunks(content)) {
            let first = number * near;
            let (mut stripe, mut dev) = (first / disks, first % disks);
            if is_offset {
                stripe *= far;
            }
            for _ in 0..near {
                let (mut d, mut s) = (dev, stripe);
                self.put_chunk(&mut members[d as usize], s, chunk);
                for _ in 1..far {
                    let set = d / far_set;
                    d += near;
                    if !disks.is_multiple_of(far_set) && d > last_start {
                        d = (d - last_start) % last_size + last_start;
                    } else {
                        d = d % far_set + far_set * set;
                    }
                    s += stride;
                    self.put_chunk(&mut members[d as usize], s, chunk);
                }
                dev += 1;
                if dev >= disks {
                    dev = 0;
                    stripe += 1;
                }
            }
        }
        members
    }
}

/// Corrects the checksum of a superblock.
pub fn seal_md(superblock: &mut [u8]) {
    // The first word after the magic is the version.
    let field = if superblock[4..8] == [0; 4] {
        38 * 4..39 * 4
    } else {
        216..220
    };
    superblock[field.clone()].fill(0);
    let words = superblock.chunks_exact(4);
    let sum: u64 = words
        .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
        .sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    superblock[field].copy_from_slice(&(sum as u32).to_le_bytes());
}

/// Multiplies in GF(2^8), bit by bit.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

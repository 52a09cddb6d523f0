//! A hash table of numbers with bounded memory (`Paged`).
//!
//! Not here: the keys; the caller of a search compares them.

use std::io;

use ubtrfs_spill::{PageRecord, Paged, Paging, ScratchDir};

#[cfg(test)]
mod tests;

const FIRST_BITS: u32 = 10;
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The stored part of the hash.
    tag: u32,
    number: u32,
}

impl PageRecord for Slot {
    const BYTES: usize = 8;

    fn write(&self, bytes: &mut [u8]) {
        self.tag.write(&mut bytes[..4]);
        self.number.write(&mut bytes[4..]);
    }

    fn read(bytes: &[u8]) -> Slot {
        Slot {
            tag: u32::read(&bytes[..4]),
            number: u32::read(&bytes[4..]),
        }
    }
}

#[derive(Debug)]
pub(super) struct HashTable {
    scratch_dir: ScratchDir,
    memory_bytes: usize,
    /// Sorted by tag; each is in the first free slot at or after its place.
    slots: Paged<Slot>,
    bits: u32,
    used: u64,
}

impl HashTable {
    pub(super) fn new(scratch_dir: &ScratchDir, memory_bytes: usize) -> io::Result<HashTable> {
        Ok(HashTable {
            slots: free_slots(scratch_dir, memory_bytes, FIRST_BITS)?,
            scratch_dir: scratch_dir.clone(),
            memory_bytes,
            bits: FIRST_BITS,
            used: 0,
        })
    }

    /// Finds the number with this hash that `is_it` confirms.
    pub(super) fn find<E: From<io::Error>>(
        &self,
        hash: u64,
        mut is_it: impl FnMut(u32) -> Result<bool, E>,
    ) -> Result<Option<u32>, E> {
        let tag = tag(hash);
        let mut at = place(tag, self.bits);
        loop {
            let slot = self.slots.get(at)?;
            if slot.number == FREE {
                return Ok(None);
            }
            if slot.tag == tag && is_it(slot.number)? {
                return Ok(Some(slot.number));
            }
            at = next(at, self.bits);
        }
    }

    /// Adds a number. Others with the same hash stay.
    pub(super) fn insert(&mut self, hash: u64, number: u32) -> io::Result<()> {
        if (self.used + 1) * 4 > 3 << self.bits {
            self.grow()?;
        }
        self.used += 1;
        let tag = tag(hash);
        put(&mut self.slots, self.bits, Slot { tag, number })
    }

    fn grow(&mut self) -> io::Result<()> {
        let bits = self.bits + 1;
        let mut slots = free_slots(&self.scratch_dir, self.memory_bytes, bits)?;
        for at in 0..self.slots.len() {
            let slot = self.slots.get(at)?;
            if slot.number != FREE {
                put(&mut slots, bits, slot)?;
            }
        }
        (self.slots, self.bits) = (slots, bits);
        Ok(())
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn place(tag: u32, bits: u32) -> u64 {
    (u64::from(tag) << bits) >> 32
}

fn next(at: u64, bits: u32) -> u64 {
    (at + 1) & ((1 << bits) - 1)
}

fn put(slots: &mut Paged<Slot>, bits: u32, slot: Slot) -> io::Result<()> {
    let mut at = place(slot.tag, bits);
    while slots.get(at)?.number != FREE {
        at = next(at, bits);
    }
    slots.set(at, slot)
}

fn free_slots(scratch_dir: &ScratchDir, memory_bytes: usize, bits: u32) -> io::Result<Paged<Slot>> {
    let paging = Paging {
        // Small, because there is no locality of access.
        page_records: 512,
        memory_bytes,
    };
    let mut slots = Paged::new(scratch_dir, paging);
    for _ in 0..1_u64 << bits {
        slots.push(Slot {
            tag: 0,
            number: FREE,
        })?;
    }
    Ok(slots)
}

//! Ways of reading blocks while they are written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use io_uring::IoUring;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use ubtrfs_sim::Rng;

use super::aio::{Aio, Aligned, Asked, Queue};
use super::blocks::{BLOCK, Blocks, offset_of};

const DEPTH: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Buffered,
    /// From the beginning to the end, with read-ahead.
    Through,
    Mapped,
    Direct,
    Aio,
    Ring,
    RingBuffered,
}

pub(crate) const READERS: [Reader; 7] = [
    Reader::Buffered,
    Reader::Through,
    Reader::Mapped,
    Reader::Direct,
    Reader::Aio,
    Reader::Ring,
    Reader::RingBuffered,
];

impl Reader {
    /// Reads until the test ends.
    pub(crate) fn run(self, blocks: &Blocks, seed: u64) {
        let mut rng = Rng::new(seed);
        match self {
            Reader::Buffered => self.one_by_one(blocks, &blocks.open(0), &mut rng),
            Reader::Direct => self.one_by_one(blocks, &blocks.open(libc::O_DIRECT), &mut rng),
            Reader::Through => self.through(blocks),
            Reader::Mapped => self.mapped(blocks, &mut rng),
            Reader::Aio => self.queued(blocks, libc::O_DIRECT, Aio::new(DEPTH), &mut rng),
            Reader::Ring => self.queued(blocks, libc::O_DIRECT, ring(), &mut rng),
            Reader::RingBuffered => self.queued(blocks, 0, ring(), &mut rng),
        }
    }

    fn one_by_one(self, blocks: &Blocks, file: &File, rng: &mut Rng) {
        let mut bytes = Aligned::new(BLOCK);
        while !blocks.is_over() {
            let number = rng.below(blocks.count() as u64) as usize;
            let least = blocks.completed(number);
            file.read_exact_at(&mut bytes, offset_of(number)).unwrap();
            blocks.assert_current(number, &bytes, least, &format!("{self:?}"));
        }
    }

    fn through(self, blocks: &Blocks) {
        let mut bytes = vec![0; BLOCK];
        while !blocks.is_over() {
            let file = blocks.open(0);
            for number in 0..blocks.count() {
                let least = blocks.completed(number);
                file.read_exact_at(&mut bytes, offset_of(number)).unwrap();
                blocks.assert_current(number, &bytes, least, "Through");
            }
        }
    }

    fn mapped(self, blocks: &Blocks, rng: &mut Rng) {
        let map = Map::new(&blocks.open(0), blocks.count() * BLOCK, ProtFlags::READ);
        let mut bytes = vec![0; BLOCK];
        while !blocks.is_over() {
            let number = rng.below(blocks.count() as u64) as usize;
            let least = blocks.completed(number);
            map.read(offset_of(number) as usize, &mut bytes);
            blocks.assert_current(number, &bytes, least, "Mapped");
        }
    }

    fn queued(self, blocks: &Blocks, flags: i32, mut queue: impl Queue, rng: &mut Rng) {
        let file = blocks.open(flags);
        let mut slots: Vec<_> = (0..DEPTH).map(|_| (Aligned::new(BLOCK), 0, 0)).collect();
        let mut begin = |queue: &mut dyn Queue, slots: &mut Vec<(Aligned, usize, u64)>, slot| {
            let (bytes, number, least) = &mut slots[slot as usize];
            *number = rng.below(blocks.count() as u64) as usize;
            *least = blocks.completed(*number);
            let asked = Asked {
                slot,
                writes: false,
                offset: offset_of(*number),
            };
            queue.submit(&file, asked, bytes);
        };
        for slot in 0..DEPTH as u64 {
            begin(&mut queue, &mut slots, slot);
        }
        let mut in_flight = DEPTH;
        while in_flight > 0 {
            let (slot, result) = queue.complete();
            assert_eq!(result.unwrap(), BLOCK);
            let (bytes, number, least) = &slots[slot as usize];
            blocks.assert_current(*number, bytes, *least, &format!("{self:?}"));
            if blocks.is_over() {
                in_flight -= 1;
            } else {
                begin(&mut queue, &mut slots, slot)
            }
        }
    }
}

pub(crate) fn ring() -> IoUring {
    IoUring::new(32).unwrap()
}

/// A file that is mapped.
pub(crate) struct Map(*mut u64, usize);

impl Map {
    pub(crate) fn new(file: &File, len: usize, access: ProtFlags) -> Map {
        // SAFETY: new memory at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, 0) };
        Map(start.unwrap().cast(), len)
    }

    /// Reads from an offset that is a multiple of 8, as all lengths are.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.1);
        for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
            // SAFETY: within the file, which no thread truncates.
            let read = unsafe { self.0.add(offset / 8 + number).read_volatile() };
            word.copy_from_slice(&read.to_ne_bytes());
        }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.1);
        for (number, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(*word.first_chunk().unwrap());
            // SAFETY: within the file, which no thread truncates.
            unsafe { self.0.add(offset / 8 + number).write_volatile(word) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and is not used after this.
        let _ = unsafe { munmap(self.0.cast(), self.1) };
    }
}

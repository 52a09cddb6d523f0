//! Ways of writing blocks. Each block has one writer.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::mm::ProtFlags;
use ubtrfs_sim::Rng;

use super::aio::{Aio, Aligned, Asked, Queue};
use super::blocks::{BLOCK, Blocks, fill, offset_of};
use super::readers::{Map, ring};

const DEPTH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Buffered,
    Mapped,
    Direct,
    Aio,
    Ring,
    RingBuffered,
    Copy,
    Punch,
    Zero,
}

pub(crate) const WRITERS: [Writer; 9] = [
    Writer::Buffered,
    Writer::Mapped,
    Writer::Direct,
    Writer::Aio,
    Writer::Ring,
    Writer::RingBuffered,
    Writer::Copy,
    Writer::Punch,
    Writer::Zero,
];

impl Writer {
    /// Writes until the test ends. Writers with several writes in flight have more blocks.
    pub(crate) fn run(self, blocks: &Blocks, own: &[usize], seed: u64) {
        let mut rng = Rng::new(seed);
        match self {
            Writer::Aio => self.queued(blocks, own, libc::O_DIRECT, Aio::new(DEPTH), &mut rng),
            Writer::Ring => self.queued(blocks, own, libc::O_DIRECT, ring(), &mut rng),
            Writer::RingBuffered => self.queued(blocks, own, 0, ring(), &mut rng),
            _ => self.one_by_one(blocks, own, &mut rng),
        }
    }

    fn one_by_one(self, blocks: &Blocks, own: &[usize], rng: &mut Rng) {
        let flags = match self {
            Writer::Direct => libc::O_DIRECT,
            _ => 0,
        };
        let file = blocks.open(flags);
        let len = blocks.count() * BLOCK;
        let map = Map::new(&file, len, ProtFlags::READ | ProtFlags::WRITE);
        let source_path = blocks.path.with_extension(format!("{self:?}"));
        let mut source = File::options();
        let source = source.create(true).truncate(true).read(true).write(true);
        let source = source.open(source_path).unwrap();
        let mut bytes = Aligned::new(BLOCK);
        while !blocks.is_over() {
            let number = own[rng.below(own.len() as u64) as usize];
            let (version, at) = (blocks.completed(number) + 1, offset_of(number));
            fill(&mut bytes, number, version);
            let begun = now();
            match self {
                Writer::Mapped => map.write(at as usize, &bytes),
                Writer::Copy => {
                    source.write_all_at(&bytes, 0).unwrap();
                    let copied =
                        copy_file_range(&source, Some(&mut 0), &file, Some(&mut { at }), BLOCK);
                    assert_eq!(copied.unwrap(), BLOCK);
                }
                Writer::Punch => {
                    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    self.empty(blocks, &file, number, version, how);
                }
                Writer::Zero => {
                    self.empty(blocks, &file, number, version, FallocateFlags::ZERO_RANGE);
                }
                _ => file.write_all_at(&bytes, at).unwrap(),
            }
            blocks.complete(number, version);
            if self != Writer::Mapped {
                self.assert_shown(blocks, begun);
            }
            if matches!(self, Writer::Punch | Writer::Zero) {
                // Makes a missing hole visible.
                file.write_all_at(&filled(number, version + 1), at).unwrap();
                blocks.complete(number, version + 1);
            }
        }
    }

    fn empty(self, blocks: &Blocks, file: &File, number: usize, version: u64, how: FallocateFlags) {
        blocks.begin_hole(number, version);
        fallocate(file, how, offset_of(number), BLOCK as u64).unwrap();
    }

    fn queued(
        self,
        blocks: &Blocks,
        own: &[usize],
        flags: i32,
        mut queue: impl Queue,
        rng: &mut Rng,
    ) {
        let file = blocks.open(flags);
        let depth = DEPTH.min(own.len());
        let mut idle = own.to_vec();
        let mut slots: Vec<_> = (0..depth)
            .map(|_| (Aligned::new(BLOCK), 0, now()))
            .collect();
        let mut free: Vec<_> = (0..depth).collect();
        loop {
            while let Some(slot) = free.pop_if(|_| !blocks.is_over()) {
                let number = idle.swap_remove(rng.below(idle.len() as u64) as usize);
                let (bytes, own, begun) = &mut slots[slot];
                fill(bytes, number, blocks.completed(number) + 1);
                (*own, *begun) = (number, now());
                let asked = Asked {
                    slot: slot as u64,
                    writes: true,
                    offset: offset_of(number),
                };
                queue.submit(&file, asked, bytes);
            }
            if free.len() == depth {
                return;
            }
            let (slot, result) = queue.complete();
            assert_eq!(result.unwrap(), BLOCK);
            let (_, number, begun) = slots[slot as usize];
            blocks.complete(number, blocks.completed(number) + 1);
            self.assert_shown(blocks, begun);
            idle.push(number);
            free.push(slot as usize);
        }
    }

    /// Checks that the displayed times of the file are not older than a complete write.
    fn assert_shown(self, blocks: &Blocks, begun: i128) {
        let shown = blocks.path.metadata().unwrap();
        let modified = i128::from(shown.mtime()) * 1_000_000_000 + i128::from(shown.mtime_nsec());
        assert!(modified >= begun, "{self:?}: {modified} is before {begun}");
    }
}

fn filled(number: usize, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    fill(&mut bytes, number, version);
    bytes
}

/// Returns the nanoseconds of the clock that the kernel uses for timestamps.
fn now() -> i128 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written during the call.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    assert_eq!(read, 0);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

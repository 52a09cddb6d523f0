//! SPACE-INFO-2, NOCOW-WRITERS-1 and TRIM-GATE-1.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::block_group::BlockGroup;
use super::nocow::NocowWrite;
use super::space_info::{SpaceInfo, release, replace};
use super::trim_gate::TrimGate;
use crate::check;
use crate::sync::{Mutex, Ordering};

/// The size of a chunk.
const CHUNK: u64 = 10;

/// Creates metadata space with room for one more chunk.
fn one_chunk_unallocated() -> Arc<SpaceInfo> {
    let info = SpaceInfo::default();
    info.unallocated_bytes.store(CHUNK, Ordering::Relaxed);
    Arc::new(info)
}

/// Creates a group with `bytes` free bytes.
fn free(bytes: u64) -> Arc<SpaceInfo> {
    let info = SpaceInfo::default();
    info.free_bytes.store(bytes, Ordering::Relaxed);
    Arc::new(info)
}

/// Allocates a data chunk from the last unallocated space, like `chunk_alloc`.
fn make_data_chunk(metadata: &SpaceInfo) -> bool {
    metadata.unallocated_bytes.store(0, Ordering::SeqCst);
    let made = metadata.fits_reservations();
    if !made {
        metadata.unallocated_bytes.store(CHUNK, Ordering::SeqCst);
    }
    made
}

/// Keeps a global reserve larger than the available space. Later reservations then check only once.
fn keep_more(info: &SpaceInfo) {
    assert!(info.reserve_metadata(0, 2 * CHUNK));
}

fn reserve_metadata(info: &Arc<SpaceInfo>) -> thread::JoinHandle<bool> {
    let info = Arc::clone(info);
    thread::spawn(move || info.reserve_metadata(CHUNK, CHUNK))
}

#[test]
fn data_chunk_and_metadata_reservation_do_not_both_take_the_last_space() {
    check(5, || {
        let info = one_chunk_unallocated();
        let reserving = reserve_metadata(&info);
        let made = make_data_chunk(&info);
        assert!(!(reserving.join().unwrap() && made));
    });
}

/// A reservation may be covered by another thread's, if that was added in time.
#[test]
fn data_chunk_does_not_come_between_two_equal_reservations() {
    check(3, || {
        let info = one_chunk_unallocated();
        let reserving = [reserve_metadata(&info), reserve_metadata(&info)];
        let made = make_data_chunk(&info);
        let reserved = reserving.map(|each| each.join().unwrap());
        assert!(!(made && reserved.contains(&true)));
    });
}

#[test]
fn chunk_that_is_made_counts_once() {
    check(5, || {
        let info = one_chunk_unallocated();
        keep_more(&info);
        let making = Arc::clone(&info);
        let making = thread::spawn(move || {
            making.unallocated_bytes.store(0, Ordering::SeqCst);
            replace(&making.free_bytes, 0, CHUNK);
        });
        assert!(!info.reserve_metadata(CHUNK + 1, 2 * CHUNK));
        making.join().unwrap();
        assert!(info.reserve_metadata(CHUNK, CHUNK));
    });
}

#[test]
fn chunk_that_is_removed_counts_once() {
    check(5, || {
        let info = free(CHUNK);
        keep_more(&info);
        let removing = Arc::clone(&info);
        let removing = thread::spawn(move || {
            replace(&removing.free_bytes, CHUNK, 0);
            removing.unallocated_bytes.store(CHUNK, Ordering::SeqCst);
        });
        assert!(!info.reserve_metadata(CHUNK + 1, 2 * CHUNK));
        removing.join().unwrap();
        assert!(info.reserve_metadata(CHUNK, CHUNK));
    });
}

#[test]
fn data_reservation_and_group_that_goes_do_not_both_take_its_space() {
    check(5, || {
        let info = free(CHUNK);
        let reserving = Arc::clone(&info);
        let reserving = thread::spawn(move || reserving.reserve_data(CHUNK));
        // Like `retire`.
        replace(&info.free_bytes, CHUNK, 0);
        let retired = info.fits_groups();
        if !retired {
            replace(&info.free_bytes, 0, CHUNK);
        }
        assert!(!(reserving.join().unwrap() && retired));
    });
}

#[test]
fn last_space_is_reserved_for_one_of_two_writers_at_most() {
    check(3, || {
        let info = free(CHUNK);
        let other = Arc::clone(&info);
        let other = thread::spawn(move || other.reserve_data(CHUNK));
        let mine = info.reserve_data(CHUNK);
        let both = [mine, other.join().unwrap()];
        assert!(both != [true, true]);
        let reserved = both.iter().filter(|&&reserved| reserved).count() as u64;
        assert_eq!(info.reserved(), reserved * CHUNK);
    });
}

/// The writer subtracts its allocation from the groups before it releases the reservation.
#[test]
fn allocation_of_reserved_data_leaves_no_gap_for_others() {
    check(5, || {
        let info = free(CHUNK);
        assert!(info.reserve_data(CHUNK));
        let writing = Arc::clone(&info);
        let writing = thread::spawn(move || {
            replace(&writing.free_bytes, CHUNK, 0);
            release(&writing.reserved_data, CHUNK);
        });
        assert!(!info.reserve_data(1));
        writing.join().unwrap();
    });
}

/// A block of a group. loom reports accesses by two threads that are not ordered.
#[derive(Debug)]
struct Block(UnsafeCell<u64>);

// SAFETY: the tests show that accesses are in order, and loom fails them if not.
#[allow(unsafe_code)]
unsafe impl Sync for Block {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for Block {}

impl Block {
    /// Accesses the block like a write, or like a reader that must not be disturbed.
    fn touch(&self) {
        self.0.with_mut(|_| ());
    }
}

/// Creates a group, and a block for each of its writers.
fn group_of<const N: usize>() -> (Arc<BlockGroup>, Arc<[Block; N]>) {
    let blocks = std::array::from_fn(|_| Block(UnsafeCell::new(0)));
    (Arc::new(BlockGroup::default()), Arc::new(blocks))
}

fn write<const N: usize>(group: &Arc<BlockGroup>, blocks: &[Block; N], block: usize) {
    if let Some(write) = NocowWrite::begin(Arc::clone(group)) {
        blocks[block].touch();
        drop(write);
    }
}

#[test]
fn closed_group_has_no_nocow_write_in_progress() {
    check(3, || {
        let (group, blocks) = group_of::<2>();
        let writers = [0, 1].map(|writer| {
            let (group, blocks) = (Arc::clone(&group), Arc::clone(&blocks));
            thread::spawn(move || write(&group, &blocks, writer))
        });
        group.nocow_writers().close();
        blocks.iter().for_each(Block::touch);
        assert!(NocowWrite::begin(Arc::clone(&group)).is_none());
        for writer in writers {
            writer.join().unwrap();
        }
        blocks.iter().for_each(Block::touch);
    });
}

#[test]
fn reopened_group_shows_its_writers_what_was_done_while_it_was_closed() {
    check(5, || {
        let (group, blocks) = group_of::<1>();
        let (writing, its_blocks) = (Arc::clone(&group), Arc::clone(&blocks));
        let writer = thread::spawn(move || write(&writing, &its_blocks, 0));
        if group.nocow_writers().try_close() {
            blocks[0].touch();
            group.nocow_writers().open();
        }
        writer.join().unwrap();
    });
}

/// An extent that is free, or taken out for a discard.
#[derive(Default)]
struct FreeExtent {
    gate: TrimGate,
    is_free: Mutex<bool>,
}

impl FreeExtent {
    fn new() -> Arc<FreeExtent> {
        let extent = FreeExtent::default();
        *extent.is_free.lock() = true;
        Arc::new(extent)
    }

    fn take(&self) -> bool {
        std::mem::take(&mut *self.is_free.lock())
    }

    /// Allocates the extent, like `alloc`.
    fn allocate(&self) -> bool {
        let moment = self.gate.moment();
        if self.take() {
            return true;
        }
        if self.gate.was_quiet_since(moment) {
            return false;
        }
        let _stopped = self.gate.stop();
        self.take()
    }

    /// Takes the extent out if it is free, and returns it.
    fn discard(&self) {
        let _entered = self.gate.enter();
        if self.take() {
            *self.is_free.lock() = true;
        }
    }
}

/// TRIM-GATE-1
#[test]
fn allocation_succeeds_though_its_extent_is_out() {
    check(4, || {
        let extent = FreeExtent::new();
        let discarding = Arc::clone(&extent);
        let discarding = thread::spawn(move || discarding.discard());
        assert!(extent.allocate());
        discarding.join().unwrap();
    });
}

/// TRIM-GATE-1
#[test]
fn one_of_two_allocations_succeeds_beside_a_discard() {
    check(2, || {
        let extent = FreeExtent::new();
        let threads = [true, false].map(|allocates| {
            let extent = Arc::clone(&extent);
            thread::spawn(move || {
                if allocates {
                    extent.allocate()
                } else {
                    extent.discard();
                    false
                }
            })
        });
        let here = extent.allocate();
        let there = threads.map(|thread| thread.join().unwrap());
        assert!(here != there[0]);
    });
}

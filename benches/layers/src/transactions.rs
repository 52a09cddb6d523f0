//! Work of transactions and of space: references to extents, and the allocator.

use std::hint::black_box;

use ubtrfs_format::ids::{InodeNr, Logical, RootId};
use ubtrfs_storage::space::{ExtentRequest, FreeSpace};
use ubtrfs_storage::{DelayedRefs, RefKey};

use crate::{MANY, Work};

pub(crate) fn delayed_refs() -> Work {
    Work::new("delayed-refs", MANY, || {
        black_box(merge_refs(MANY));
    })
}

pub(crate) fn allocator() -> Work {
    let mut group = FragmentedGroup::new();
    Work::new("allocator", MANY, move || group.allocate_and_release(MANY))
}

const SECTOR: u64 = 4096;
const GROUP_BYTES: u64 = 1 << 30;
const GROUP_START: u64 = 1 << 30;

/// Creates `extents` extents, shares each, and drops half of the references; returns the remaining extents.
fn merge_refs(extents: u64) -> usize {
    let mut refs = DelayedRefs::default();
    let owner = |root, number: u64| RefKey::DataRoot {
        root: RootId(root),
        ino: InodeNr(256 + number),
        offset: 0,
    };
    let place = |number: u64| Logical(GROUP_START + number * SECTOR);
    for number in 0..extents {
        refs.new_data(place(number), SECTOR);
        refs.change(place(number), SECTOR, owner(5, number), 1, None);
        refs.change(place(number), SECTOR, owner(256, number), 1, None);
    }
    for number in 0..extents {
        refs.change(place(number), SECTOR, owner(5, number), -1, None);
    }
    refs.take().len()
}

/// A block group with fragmented free space.
struct FragmentedGroup {
    free: FreeSpace,
    hint: u64,
}

impl FragmentedGroup {
    fn new() -> FragmentedGroup {
        let mut free = FreeSpace::new(GROUP_START, GROUP_BYTES, SECTOR);
        for piece in (0..GROUP_BYTES).step_by(16 * SECTOR as usize) {
            // DirtyRanges of 4 to 7 sectors.
            let sectors = 4 + (piece / (16 * SECTOR)) % 4;
            free.add(GROUP_START + piece, sectors * SECTOR)
                .expect("pieces do not touch");
        }
        FragmentedGroup {
            free,
            hint: GROUP_START,
        }
    }

    /// Allocates `sectors` sectors, one at a time, and frees them.
    fn allocate_and_release(&mut self, sectors: u64) {
        let mut taken = Vec::with_capacity(sectors as usize);
        for _ in 0..sectors {
            let wanted = ExtentRequest {
                bytes: SECTOR,
                min_bytes: SECTOR,
                align: SECTOR,
                hint: Some(self.hint),
            };
            let (start, len) = self.free.allocate(&wanted).expect("there is room");
            self.hint = start + len;
            taken.push((start, len));
        }
        for (start, len) in taken {
            self.free.add(start, len).expect("it was taken");
        }
        self.hint = GROUP_START;
    }
}

//! A small deterministic task for each layer.
//!
//! Criterion measures its time. `ubtrfs-layers` repeats it often enough to count its instructions.

mod blocks;
mod sets;
mod transactions;

use std::hint::black_box;

use ubtrfs_format::name_hash::name_hash;

/// A task to measure.
pub struct Work {
    pub name: &'static str,
    /// The number of items that one call processes; figures are per item.
    pub things: u64,
    pub run: Box<dyn FnMut()>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("name", &self.name).finish()
    }
}

impl Work {
    fn new(name: &'static str, things: u64, run: impl FnMut() + 'static) -> Work {
        let run = Box::new(run);
        Work { name, things, run }
    }
}

type Make = fn() -> Work;

/// All tasks by name; the setup may take much longer than one call.
pub const ALL: &[(&str, Make)] = &[
    ("check-leaf", blocks::check_leaf),
    ("search-leaf", blocks::search_leaf),
    ("get", sets::get),
    ("put", sets::put),
    ("range", sets::range),
    ("apply", sets::apply_batch),
    ("delayed-refs", transactions::delayed_refs),
    ("allocator", transactions::allocator),
    ("name-hash", name_hashes),
];

const MANY: u64 = 1000;

fn name_hashes() -> Work {
    let names: Vec<String> = (0..MANY).map(|n| format!("a-usual-name-{n}.txt")).collect();
    Work::new("name-hash", MANY, move || {
        for name in &names {
            black_box(name_hash(black_box(name.as_bytes())));
        }
    })
}

/// Returns deterministic key offsets in scattered order.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24)
}

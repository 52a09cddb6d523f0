//! The memory bound of a walk.

use std::path::Path;

use super::*;

/// ENTRIES-2
#[test]
fn walk_in_order_of_the_listing_holds_one_batch_a_level() {
    const FILES: usize = 2 * BATCH + 100;
    let volume = crate::Volume::in_memory(256 << 20).unwrap();
    volume.root().create_dir("/dir").unwrap();
    for number in 0..FILES {
        volume.root().write(format!("/dir/{number}"), "").unwrap();
    }
    let root = volume.root().resolve(Path::new("/")).unwrap();
    let filter = Filter::default();
    let mut walk = Walk::new(volume.engine(), root, b"", Order::Index, filter);
    let mut seen = 0;
    while let Some(step) = walk.next_step() {
        if let Step::Entry(entry) = step {
            seen += 1;
            if entry.kind == FileKind::Directory {
                walk.enter(&entry).unwrap();
            }
        }
        let held = |level: &Level| level.listing.entries.as_slice().len();
        assert!(walk.levels.iter().map(held).all(|held| held < BATCH));
    }
    assert_eq!(seen, FILES + 1);
}

//! The check of whole volumes.

mod kept_images;

use ubtrfs_check::Report;

/// What mkfs.btrfs leaves behind.
const LEFT_BY_MKFS: u16 = 506;

/// Nothing is wrong, and the tools that made the volume are not to be blamed for more than is known.
fn assert_sound(what: &str, report: &Report) {
    let numbers = report.numbers();
    let sound = numbers.iter().all(|&number| number == LEFT_BY_MKFS);
    assert!(sound && report.suppressed == 0, "{what}:\n{report}");
}

//! The check of whole volumes.

mod damage;
mod kept_images;
mod kernel_volumes;
mod logs;
mod planted;
mod verdicts;

use ubtrfs_check::Report;

fn assert_spotless(what: &str, report: &Report) {
    let spotless = report.is_spotless() && report.suppressed == 0;
    assert!(spotless, "{what}:\n{report}");
}

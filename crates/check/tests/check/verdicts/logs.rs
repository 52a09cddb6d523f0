//! The kernel replays each log without errors in the check. Each log has one planted fault.

use ubtrfs_sim::kernel::{progs_verdict, writing_verdict};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::{Scratch, kernel};

use super::ours;
use crate::planted::logs::{Logged, all};

#[test]
fn log_without_an_error_is_replayed_by_the_kernel() {
    const TEST: &str = "log_without_an_error_is_replayed_by_the_kernel";
    if !kernel::or_skip(TEST) {
        return;
    }
    let logged = Logged::new();
    let mut failures = String::new();
    let mut tally = [0; 2];
    for (numbers, what, plant) in all() {
        let mut volume = logged.volume.clone();
        plant(&mut volume);
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("v.img");
        save_image(&*volume.devices()[0].1, &image).unwrap();
        let image = [image];
        let report = ours(&image);
        let mut verdict = progs_verdict(&image, true);
        if verdict.is_ok() {
            verdict = writing_verdict(&image).and_then(|()| progs_verdict(&image, true));
        }
        let replayed = verdict.is_ok() && ours(&image).is_clean();
        tally[usize::from(replayed)] += 1;
        if report.is_clean() && !replayed {
            failures += &format!("{what} {numbers:?}: {verdict:?}\n{report}\n");
        }
    }
    let [refused, replayed] = tally;
    println!("{TEST}: {replayed} replayed, {refused} not");
    assert!(failures.is_empty(), "{failures}");
}

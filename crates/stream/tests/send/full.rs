//! Full sends of edge cases of the format.

use ubtrfs_sim::fill::{Scale, hard_cases};
use ubtrfs_stream::Command;

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, V2, V2_COMPRESSED, count};

#[test]
fn hard_cases_are_received_as_they_are() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new(",compress=zstd");
    let scale = Scale {
        beyond_path_max: false,
        ..Scale::tiny()
    };
    hard_cases(&source.live(), &scale, 1).unwrap();
    source.snapshot("s");
    let sending = source.open();
    for options in [V1, V2, V2_COMPRESSED] {
        let target = Target::new("");
        let stream = sending.send("s", None, &[], options);
        target.receive(&sending, "s", &stream);
        let encoded = count(&stream, |c| matches!(c, Command::EncodedWrite { .. }));
        assert_eq!(encoded > 0, options.compressed, "{encoded} encoded writes");
    }
}

#[test]
fn streams_of_equal_snapshots_are_equal() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    hard_cases(
        &source.live(),
        &Scale {
            beyond_path_max: false,
            ..Scale::tiny()
        },
        2,
    )
    .unwrap();
    source.snapshot("s");
    let sending = source.open();
    let first = std::fs::read(sending.send("s", None, &[], V1)).unwrap();
    let second = std::fs::read(sending.send("s", None, &[], V1)).unwrap();
    assert!(first == second);
}

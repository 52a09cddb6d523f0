//! Extents shared between files, sent as clones.

use std::fs::{self, File};
use std::path::Path;

use ubtrfs_sim::Rng;
use ubtrfs_stream::Command;

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, count};

const LEN: usize = 1_000_001;

fn random(path: &Path, seed: u64) {
    let mut bytes = vec![0; LEN];
    Rng::new(seed).fill(&mut bytes);
    fs::write(path, bytes).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

fn clone(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    rustix::fs::ioctl_ficlone(to, from).unwrap();
}

fn clones(stream: &Path) -> usize {
    count(stream, |command| matches!(command, Command::Clone { .. }))
}

fn writes(stream: &Path) -> usize {
    count(stream, |command| matches!(command, Command::Write { .. }))
}

/// CLONE-1, CLONE-2
#[test]
fn shared_extents_are_sent_once() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    random(&live.join("a"), 1);
    clone(&live.join("a"), &live.join("b"));
    source.snapshot("first");
    clone(&live.join("a"), &live.join("c"));
    fs::remove_file(live.join("a")).unwrap();
    source.snapshot("second");
    fs::remove_file(live.join("b")).unwrap();
    fs::remove_file(live.join("c")).unwrap();
    source.snapshot("none");
    fs::write(live.join("other"), b"").unwrap();
    source.snapshot("before");
    let sending = source.open();
    let target = Target::new("");

    let stream = sending.send("first", None, &[], V1);
    target.receive(&sending, "first", &stream);
    assert_eq!(writes(&stream), LEN.div_ceil(48 << 10));
    assert!(clones(&stream) > 0);

    let stream = sending.send("second", Some("first"), &[], V1);
    target.receive(&sending, "second", &stream);
    assert_eq!(writes(&stream), 0);

    let stream = sending.send("none", Some("second"), &[], V1);
    target.receive(&sending, "none", &stream);

    // The parent has none of the data, the clone source has all of it.
    target.delete("second");
    let stream = sending.send("second", Some("none"), &["first"], V1);
    target.receive(&sending, "second", &stream);
    assert_eq!(writes(&stream), 0);
}

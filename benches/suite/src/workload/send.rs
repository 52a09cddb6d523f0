//! Sends of snapshots, whole and as differences.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use super::snapshots::{self, Sent};
use super::{Outcome, Workload};
use crate::figures::{Round, Side};
use crate::kit::Kit;

pub(super) const MOVES: Workload = Workload {
    name: "s2-send",
    title: "S2: incremental send after many moves",
    text: "Of a snapshot with N files in one directory, all are moved to another directory where N new ones \
           are made. Then an incremental send from a cold cache, whose stream is only counted. N is 10,000, 20,000 and \
           30,000. All sides send from the same volumes, which the kernel made.",
    sides: &Side::ALL,
    most_rounds: 2,
    run: measure_moves,
};

pub(super) const MANY: Workload = Workload {
    name: "s2-send-many",
    title: "S2: send of many files and of a large one",
    text: "Sends from a cold cache: of a snapshot with 1,000,000 files of 500 bytes, of its difference from one after 100 \
           changes, and of a snapshot with a file of 4 GiB. Streams are only counted. All sides send from the \
           same volumes, which the kernel made.",
    sides: &Side::ALL,
    most_rounds: 2,
    run: measure_many,
};

const SMALL_FILES: u64 = 1_000_000;
const LARGE_MIB: u64 = 4096;

fn measure_moves(kit: &Kit, side: Side) -> Result<Outcome> {
    let mut round = Round::default();
    let sizes: &[u64] = if kit.is_quick {
        &[10_000]
    } else {
        &[10_000, 20_000, 30_000]
    };
    for &files in sizes {
        let image = snapshots::image(kit, &format!("moves-{files}"), |top| move_all(top, files))?;
        let sent = Sent {
            image: &image,
            parent: Some("snap1"),
            snapshot: "snap2",
        };
        let what = format!("{},000 files", files * 2 / 1000);
        snapshots::measure(kit, side, &what, &sent, &mut round)?;
    }
    Ok(Outcome::Figures(round))
}

fn move_all(top: &Path, files: u64) -> Result<()> {
    let (old, new) = (top.join("old"), top.join("new"));
    fs::create_dir(&old)?;
    for number in 0..files {
        fs::write(old.join(format!("file{number}")), b"1234567890")?;
    }
    snapshots::take(top, &top.join("snap1"))?;
    fs::create_dir(&new)?;
    for number in 0..files {
        let name = format!("file{number}");
        fs::rename(old.join(&name), new.join(&name))?;
        fs::write(new.join(format!("more{number}")), b"1234567890")?;
    }
    snapshots::take(top, &top.join("snap2"))
}

fn measure_many(kit: &Kit, side: Side) -> Result<Outcome> {
    let mut round = Round::default();
    let many = snapshots::many_files(kit, small_files(kit))?;
    let large = snapshots::image(kit, "large", |top| {
        write_large(&top.join("large"), kit.scaled(LARGE_MIB))?;
        snapshots::take(top, &top.join("snap"))
    })?;
    let cases = [
        ("small files", &many, None, "many"),
        ("100 changes", &many, Some("many"), "later"),
        ("large file", &large, None, "snap"),
    ];
    for (what, image, parent, snapshot) in cases {
        let sent = Sent {
            image,
            parent,
            snapshot,
        };
        snapshots::measure(kit, side, what, &sent, &mut round)?;
    }
    Ok(Outcome::Figures(round))
}

/// Returns the number of files in [`snapshots::many_files`].
pub(super) fn small_files(kit: &Kit) -> u64 {
    if kit.is_quick { 10_000 } else { SMALL_FILES }
}

fn write_large(path: &Path, mib: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; 1 << 20];
    for number in 0..mib {
        // No two sectors are equal.
        for (at, word) in block.chunks_exact_mut(8).enumerate() {
            let value = (number << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&value.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(())
}

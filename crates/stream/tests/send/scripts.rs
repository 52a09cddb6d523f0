//! Random edits between snapshots, sent in full and as differences.

use ubtrfs_sim::{Progress, Rng, seed};

use crate::edits::Editor;
use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, V2, V2_COMPRESSED, btrfs};
use crate::received_by_us::OwnTarget;

/// Number of scripts in a normal run, and in a soak.
const SCRIPTS: usize = 8;
const SOAK_SCRIPTS: usize = 1000;
const SNAPSHOTS: usize = 4;

fn run(script_seed: u64) {
    let mut rng = Rng::new(script_seed);
    let compressed = rng.one_in(2);
    let mut source = Source::new(if compressed {
        ",compress-force=zstd"
    } else {
        ""
    });
    let names: Vec<String> = (0..SNAPSHOTS).map(|number| format!("s{number}")).collect();
    let other = source.live().with_file_name("other");
    let has_other = rng.one_in(3);
    if has_other {
        if rng.one_in(2) {
            btrfs(&["subvolume", "create"], &[&other])
        } else {
            btrfs(&["subvolume", "snapshot"], &[&source.live(), &other])
        }
    }
    for name in &names {
        let edits = 10 + rng.below(90);
        let of = if has_other && rng.one_in(2) {
            "other"
        } else {
            "live"
        };
        if has_other {
            // In one transaction, so that both have inodes with equal numbers and generations.
            for dir in [source.live(), other.clone()] {
                Editor::new(&dir, &mut rng).edit(edits / 2);
            }
        }
        let mut editor = Editor::new(&source.live().with_file_name(of), &mut rng);
        editor.edit(edits);
        source.snapshot_of(of, name);
        drop(editor);
        if rng.one_in(2) {
            source.remount();
        }
    }
    let sending = source.open();
    let options = [V1, V2, V2_COMPRESSED][rng.below(3) as usize];
    let target = Target::new("");
    let ours = OwnTarget::new();
    let mut received: Vec<&str> = Vec::new();
    for (number, name) in names.iter().enumerate() {
        // The previous one, or any earlier one.
        let parent = match number {
            0 => None,
            number => Some(names[rng.below(number as u64) as usize].as_str()),
        };
        let clones = if rng.one_in(2) { &received[..] } else { &[] };
        let stream = sending.send(name, parent, clones, options);
        ours.receive(&stream);
        received.push(name);
        if let Err(wrong) = target.try_receive(&sending, name, &stream) {
            panic!("seed {script_seed}: {name} from {parent:?}: {wrong}");
        }
    }
    ours.judge(&sending, &received);
    // Also backwards in time.
    let target = Target::new("");
    let last = &names[SNAPSHOTS - 1];
    target.receive(&sending, last, &sending.send(last, None, &[], options));
    let stream = sending.send(&names[0], Some(last), &[], options);
    if let Err(wrong) = target.try_receive(&sending, &names[0], &stream) {
        panic!("seed {script_seed}: back to the first: {wrong}");
    }
}

/// DATA-1
#[test]
fn random_scripts_are_received_as_they_are() {
    if !available_or_skip() {
        return;
    }
    let mut seeds = Rng::new(seed("send scripts"));
    let count = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => SOAK_SCRIPTS,
        None => SCRIPTS,
    };
    let progress = Progress::new("send scripts", count);
    for _ in 0..count {
        run(seeds.next_u64());
        progress.step(|| "");
    }
}

//! Random edits on all kinds of volumes: our streams received by the kernel and by us, and the kernel's streams
//! received by us.
//!
//! `UBTRFS_CASES` sets the number of kinds; `UBTRFS_SOAK` runs some hundreds.

use std::path::PathBuf;

use ubtrfs_sim::manifest::Field;
use ubtrfs_sim::matrix::{self, Case};
use ubtrfs_sim::{Progress, Rng, seed};

use crate::edits::Editor;
use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, V2, V2_COMPRESSED};
use crate::received_by_us::OwnTarget;

/// Number of kinds in a normal run.
const CASES: usize = 3;

fn run(case: &Case, rng: &mut Rng) {
    let mount_options = format!(",{}", case.compression.mount_option());
    let mut source = Source::of(&case.spec(), &mount_options);
    let count = 2 + rng.below(4) as usize;
    let names: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
    let theirs: Vec<PathBuf> = (0..count)
        .map(|number| {
            let edits = 10 + rng.below(70);
            Editor::new(&source.live(), rng).edit(edits);
            source.snapshot(&names[number]);
            if rng.one_in(3) {
                source.remount();
            }
            let parent = number.checked_sub(1).map(|before| names[before].as_str());
            let options: &[&str] = match rng.below(3) {
                0 => &[],
                1 => &["--proto", "2"],
                _ => &["--proto", "2", "--compressed-data"],
            };
            source.sent_by_kernel(&names[number], parent, options)
        })
        .collect();
    let sending = source.open();
    let target = Target::new("");
    let ours = if matrix::writable().contains(case) {
        OwnTarget::of(&case.spec())
    } else {
        OwnTarget::new()
    };
    // Faults of the kernel's streams must be the same here as in the kernel.
    let (theirs_there, theirs_here) = (Target::new(""), OwnTarget::new());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (number, name) in names.iter().enumerate() {
        let parent = match number {
            0 => None,
            number if rng.one_in(5) => Some(names[rng.below(number as u64) as usize]),
            number => Some(names[number - 1]),
        };
        let parent = parent.filter(|_| !rng.one_in(6));
        let clones = if rng.one_in(2) { &names[..number] } else { &[] };
        let options = [V1, V2, V2_COMPRESSED][rng.below(3) as usize];
        let stream = sending.send(name, parent, clones, options);
        ours.receive(&stream);
        theirs_here.receive(&theirs[number]);
        theirs_there.take(&theirs[number]).unwrap();
        if let Err(wrong) = target.try_receive(&sending, name, &stream) {
            panic!("{case}: {name} from {parent:?}: {wrong}");
        }
    }
    ours.judge(&sending, &names);
    let wanted: Vec<_> = names
        .iter()
        .map(|name| (*name, theirs_there.shown(name)))
        .collect();
    // Inodes inherit attributes of the root directory at the kernel's receiver, because it creates them there.
    theirs_here.judge_as(&wanted, &[Field::Mtime, Field::Xattrs]);
}

#[test]
fn streams_of_all_kinds_of_volumes_are_received_as_they_are() {
    if !available_or_skip() {
        return;
    }
    let is_chosen =
        std::env::var_os("UBTRFS_CASES").is_some() || std::env::var_os("UBTRFS_SOAK").is_some();
    let cases = if is_chosen {
        matrix::chosen()
    } else {
        let seed = seed("kinds that are sent");
        matrix::sample(&matrix::full(), CASES, seed)
    };
    let mut rng = Rng::new(seed("edits of kinds that are sent"));
    let progress = Progress::new("kinds that are sent", cases.len());
    for case in &cases {
        run(case, &mut rng);
        progress.step(|| "");
    }
}

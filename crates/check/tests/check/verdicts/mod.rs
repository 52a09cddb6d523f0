//! The verdict of a check is that of `btrfs check`, and the kernel mounts every volume that is called sound.
//!
//! Three judges see each volume: this check, `btrfs check` and the kernel's mount. Where the first two differ, the
//! fault is listed here and on the page that users read, `docs/check.md`, with its reason.
//!
//! Not here: cuts of what the engine writes (`survival::power_cut` of the engine).

mod logs;
mod page;
mod planted;
mod power_cut;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ubtrfs_check::{CheckOptions, Report, Severity, check};
use ubtrfs_sim::kernel::{progs_verdict, reading_verdict, writing_verdict};

/// A fault that `btrfs check` passes over, and what follows from it that it passes over then, too.
struct Stricter {
    number: u16,
    follows: &'static [u16],
}

const fn stricter(number: u16) -> Stricter {
    Stricter {
        number,
        follows: &[],
    }
}

/// Errors here that leave the exit code of `btrfs check` 0.
const STRICTER: &[Stricter] = &[
    stricter(106),
    Stricter {
        number: 108,
        follows: &[203, 206],
    },
    stricter(109),
    stricter(115),
    stricter(202),
    stricter(204),
    stricter(205),
    stricter(214),
    stricter(306),
    stricter(403),
    stricter(420),
    Stricter {
        number: 605,
        follows: &[603, 604],
    },
    stricter(609),
    stricter(610),
    stricter(611),
    stricter(613),
    stricter(722),
    stricter(723),
    stricter(724),
    stricter(803),
];

/// The verdicts of the three judges of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    Sound,
    Faulty,
    /// Faulty here only, by a fault that is listed.
    Stricter,
}

fn ours(devices: &[PathBuf]) -> Report {
    let options = CheckOptions {
        data_csums: true,
        max_issues: 12,
        ..CheckOptions::default()
    };
    check(devices, &options, &mut |_| {}).unwrap()
}

/// Returns the numbers of errors, not of warnings and notes.
fn errors(report: &Report) -> BTreeSet<u16> {
    let errors = report.issues.iter();
    let errors = errors.filter(|issue| issue.severity() == Severity::Error);
    errors.map(|issue| issue.fault.number()).collect()
}

fn are_listed(errors: &BTreeSet<u16>) -> bool {
    let listed = STRICTER.iter().filter(|one| errors.contains(&one.number));
    let excused: BTreeSet<u16> = listed
        .flat_map(|one| one.follows.iter().copied().chain([one.number]))
        .collect();
    errors.is_subset(&excused)
}

/// Has the devices judged. The kernel mounts a copy that `copy` makes if a check called them sound.
fn compare(devices: &[PathBuf], copy: impl FnOnce() -> Vec<PathBuf>) -> Result<Agreement, String> {
    let report = ours(devices);
    let theirs = progs_verdict(devices, true);
    match (report.is_clean(), theirs) {
        (true, Err(theirs)) => return Err(format!("sound here, btrfs check: {theirs}\n{report}")),
        (false, Err(_)) => return Ok(Agreement::Faulty),
        (false, Ok(())) if are_listed(&errors(&report)) => return Ok(Agreement::Stricter),
        (false, Ok(())) => return Err(format!("faulty here only:\n{report}")),
        (true, Ok(())) => {}
    }
    let copies = copy();
    reading_verdict(&copies).map_err(|error| format!("sound, the kernel: {error}\n{report}"))?;
    writing_verdict(&copies).map_err(|error| format!("sound, the kernel: {error}\n{report}"))?;
    let after = ours(&copies);
    progs_verdict(&copies, true).map_err(|error| format!("after the kernel's mount: {error}"))?;
    match after.is_clean() {
        true => Ok(Agreement::Sound),
        false => Err(format!("after the kernel's mount:\n{after}")),
    }
}

fn rounds(few: usize, soak: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => soak,
        None => few,
    }
}

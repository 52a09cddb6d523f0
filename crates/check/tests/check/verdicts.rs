//! The verdict agrees with `btrfs check`, and the kernel mounts every volume that the check considers clean.
//!
//! Each volume is judged by this check, by `btrfs check` and by the kernel's mount. Differences between the first two
//! are listed here and in the user documentation, `docs/check.md`, with their reasons.
//!
//! Not here: power cuts during writes of the engine (`survival::power_cut` of the engine).

mod logs;
mod page;
mod planted;
mod power_cut;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ubtrfs_check::{CheckOptions, Report, Severity, check};
use ubtrfs_sim::kernel::{progs_verdict, reading_verdict, writing_verdict};

/// A fault that `btrfs check` ignores, and its consequences that it then ignores as well.
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

/// Errors of this check for which `btrfs check` exits with 0.
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

/// The combined verdict on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    Sound,
    Faulty,
    /// Faulty only in this check, because of a listed fault.
    Stricter,
}

fn ours(devices: &[PathBuf]) -> Report {
    let options = CheckOptions {
        data_csums: true,
        max_issues: 12,
        ..CheckOptions::default()
    };
    check(devices, &options, &mut ()).unwrap()
}

/// Returns the numbers of errors, without warnings and notes.
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

/// Checks the devices with all judges. If the checks find no error, the kernel mounts the copy made by `copy`.
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
    if after.is_clean() {
        Ok(Agreement::Sound)
    } else {
        Err(format!("after the kernel's mount:\n{after}"))
    }
}

fn rounds(few: usize, soak: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => soak,
        None => few,
    }
}

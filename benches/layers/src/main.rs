//! `ubtrfs-layers NAME CALLS`: repeats a task `CALLS` times, for counts of instructions.

use std::process::ExitCode;

use ubtrfs_layers::{ALL, Work};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let found = match args.as_slice() {
        [name, calls] => ALL
            .iter()
            .find(|(known, _)| known == name)
            .zip(calls.parse::<u64>().ok()),
        _ => None,
    };
    let Some(((_, make), calls)) = found else {
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "usage: ubtrfs-layers NAME CALLS, with NAME of {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let mut work = make();
    measured(&mut work, calls);
    println!("{}", work.things);
    ExitCode::SUCCESS
}

/// Measures calls of one layer. Counters count within this function only.
#[inline(never)]
fn measured(work: &mut Work, calls: u64) {
    for _ in 0..calls {
        (work.run)();
    }
}

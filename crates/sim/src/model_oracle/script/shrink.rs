//! Shortens failing scripts, and runs random scripts.

use std::time::{Duration, Instant};

use super::run::{Failure, Problem, RunOptions, run};
use super::{Op, Shape, Target, generate};

/// Limits of shrinking: a number of attempts, within a time that is proportional to the script's own.
const TRIES: usize = 400;
const LEAST_TIME: Duration = Duration::from_secs(180);
const MOST_TIME: Duration = Duration::from_secs(600);
const TIMES: u32 = 40;
/// Maximum number of operations at the end of a script that are printed.
const PRINTED: usize = 300;
/// The shortest suffix of a script that is tried separately is this fraction of it.
const END: usize = 64;
/// Number of comparisons between a successful and a failing one.
const COMPARISONS: usize = 32;

/// Finds a shorter script for which `fails` is still true. First tries suffixes, because the beginning of a long
/// script rarely matters. Then removes parts, halves first, then smaller ones, until no single operation can be
/// removed or the time is up.
pub fn shrink(ops: &[Op], fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    shrink_within(MOST_TIME, ops, fails)
}

fn shrink_within(time: Duration, ops: &[Op], mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut tries = 0;
    let end = Instant::now() + time;
    let mut keep_going = move || {
        tries += 1;
        tries <= TRIES && Instant::now() < end
    };
    let mut ops = ops.to_vec();
    let mut len = ops.len() / END;
    while len > 0 && len < ops.len() && keep_going() {
        if fails(&ops[ops.len() - len..]) {
            ops.drain(..ops.len() - len);
            break;
        }
        len *= 2;
    }
    let mut part = ops.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < ops.len() {
            if !keep_going() {
                return ops;
            }
            let end = (at + part).min(ops.len());
            let without: Vec<Op> = [&ops[..at], &ops[end..]].concat();
            if fails(&without) {
                ops = without;
                is_shorter = true;
            } else {
                at = end;
            }
        }
        part = match part {
            1 if is_shorter => 1,
            _ => part / 2,
        };
    }
    ops
}

/// Runs a random script on a fresh target. On failure, panics with a shorter script that also fails.
pub fn prove<T: Target>(
    shape: Shape,
    seed: u64,
    count: usize,
    options: &RunOptions,
    mut target: impl FnMut() -> T,
) {
    let name = format!("{shape:?}, UBTRFS_SEED={seed}, {count} operations");
    let ops = generate(shape, seed, count);
    prove_script(&name, &ops, options, |ops, options| {
        run(&mut target(), ops, options)
    });
}

/// Returns the result of a script. `attempt` runs a script on a fresh target; on failure, panics with a shorter
/// script that also fails. `name` describes how to generate the script again.
pub fn prove_script<R>(
    name: &str,
    ops: &[Op],
    options: &RunOptions,
    mut attempt: impl FnMut(&[Op], &RunOptions) -> Result<R, Failure>,
) -> R {
    let options = RunOptions {
        name: name.to_owned(),
        ..options.clone()
    };
    let began = Instant::now();
    let mut first = match attempt(ops, &options) {
        Ok(done) => return done,
        Err(first) => first,
    };
    let time = (began.elapsed() * TIMES).clamp(LEAST_TIME, MOST_TIME);
    eprintln!("{name}, failed: {first}");
    if let Some(earlier) = shown_first(&first, ops, &options, &mut attempt) {
        eprintln!("{name}, shows first: {earlier}");
        first = earlier;
    }
    eprintln!("{name}: made shorter for at most {} s", time.as_secs());
    let options = RunOptions {
        name: format!("{name}, a part"),
        ..options
    };
    let mut fails = |ops: &[Op]| attempt(ops, &options).err();
    let short = shrink_within(time, &ops[..=first.index], |ops| {
        fails(ops).is_some_and(|failure| failure.is_like(&first))
    });
    let last = fails(&short).unwrap_or(first);
    let left_out = short.len().saturating_sub(PRINTED);
    let printed = short[left_out..].iter();
    let mut script: Vec<String> = printed.map(|op| format!("    Op::{op:?},")).collect();
    if left_out > 0 {
        script.insert(0, format!("    // {left_out} operations before these"));
    }
    panic!("{name}: {last}\n[\n{}\n]", script.join("\n"));
}

/// Finds the earliest failure of a comparison, by more comparisons after the last successful one.
fn shown_first<R>(
    failure: &Failure,
    ops: &[Op],
    options: &RunOptions,
    attempt: &mut impl FnMut(&[Op], &RunOptions) -> Result<R, Failure>,
) -> Option<Failure> {
    let Problem::Shown(_) = failure.problem else {
        return None;
    };
    let from = options.last_comparison(failure.index);
    let closely = RunOptions {
        name: format!("{}, compared from {from} on", options.name),
        compare_from: Some(from),
        compare_every: ((failure.index - from) / COMPARISONS).max(1),
        ..options.clone()
    };
    let earlier = attempt(&ops[..=failure.index], &closely).err()?;
    earlier.is_like(failure).then_some(earlier)
}

//! Makes a script that fails shorter, and proves scripts.

use std::time::{Duration, Instant};

use super::run::{Failure, RunOptions, run};
use super::{Op, Shape, Target, generate};

/// How much shrinking may take: so many tries, within a time that is in proportion to the script's own.
const TRIES: usize = 400;
const LEAST_TIME: Duration = Duration::from_secs(180);
const MOST_TIME: Duration = Duration::from_secs(1800);
const TIMES: u32 = 40;
/// Of a script that stays long, its end.
const PRINTED: usize = 300;

/// A shorter script for which `fails` is still true: parts are left out, halves first, then ever smaller
/// ones, until no single operation can go or it took too long.
pub fn shrink(ops: &[Op], fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    shrink_within(MOST_TIME, ops, fails)
}

fn shrink_within(time: Duration, ops: &[Op], mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut ops = ops.to_vec();
    let mut tries = 0;
    let end = Instant::now() + time;
    let mut goes_on = move || {
        tries += 1;
        tries <= TRIES && Instant::now() < end
    };
    let mut part = ops.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < ops.len() {
            if !goes_on() {
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

/// Runs a random script on a fresh target. If it fails, panics with a shorter script that fails too.
pub fn prove<T: Target>(
    shape: Shape,
    seed: u64,
    count: usize,
    options: &RunOptions,
    mut target: impl FnMut() -> T,
) {
    let ops = generate(shape, seed, count);
    let mut fails = |ops: &[Op]| -> Option<Failure> { run(&mut target(), ops, options).err() };
    let began = Instant::now();
    let Some(first) = fails(&ops) else {
        return;
    };
    let time = (began.elapsed() * TIMES).clamp(LEAST_TIME, MOST_TIME);
    eprintln!("{shape:?}, UBTRFS_SEED={seed}, shrinking: {first}");
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
    panic!(
        "{shape:?}, UBTRFS_SEED={seed}, {count} operations: {last}\n[\n{}\n]",
        script.join("\n")
    );
}

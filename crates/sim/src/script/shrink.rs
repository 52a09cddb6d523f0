//! Makes a script that fails shorter, and proves scripts.

use std::time::{Duration, Instant};

use super::run::{Failure, RunOptions, run};
use super::{Op, Shape, Target, generate};

/// How much shrinking may take.
const TRIES: usize = 400;
const TIME: Duration = Duration::from_secs(180);

/// A shorter script for which `fails` is still true: parts are left out, halves first, then ever smaller
/// ones, until no single operation can go or it took too long.
pub fn shrink(ops: &[Op], mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut ops = ops.to_vec();
    let mut tries = 0;
    let end = Instant::now() + TIME;
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
    let Some(first) = fails(&ops) else {
        return;
    };
    eprintln!("{shape:?}, UBTRFS_SEED={seed}, shrinking: {first}");
    let short = shrink(&ops[..=first.index], |ops| {
        fails(ops).is_some_and(|failure| failure.is_like(&first))
    });
    let last = fails(&short).unwrap_or(first);
    let script: Vec<String> = short.iter().map(|op| format!("    Op::{op:?},")).collect();
    panic!(
        "{shape:?}, UBTRFS_SEED={seed}, {count} operations: {last}\n[\n{}\n]",
        script.join("\n")
    );
}

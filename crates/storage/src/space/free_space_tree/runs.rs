//! Sorted lists of ranges that neither overlap nor touch.

use std::ops::Range;

type Runs = Vec<Range<u64>>;

/// Appends a range. Merges it with the last one if they touch.
pub(super) fn push(runs: &mut Runs, range: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => runs.push(range),
    }
}

/// Returns the union of two lists. Fails with the first range of `new` that overlaps another one.
pub(super) fn add(runs: &[Range<u64>], new: &[Range<u64>]) -> Result<Runs, Range<u64>> {
    let mut sum = Runs::with_capacity(runs.len() + new.len());
    let mut old = runs.iter().peekable();
    for range in new {
        while let Some(before) = old.next_if(|old| old.start < range.start) {
            push(&mut sum, before.clone());
        }
        let overlaps_before = sum.last().is_some_and(|last| last.end > range.start);
        if overlaps_before || old.peek().is_some_and(|next| next.start < range.end) {
            return Err(range.clone());
        }
        push(&mut sum, range.clone());
    }
    old.for_each(|rest| push(&mut sum, rest.clone()));
    Ok(sum)
}

/// Subtracts `gone` from `runs`. Fails with the first range of `gone` that is not within one of `runs`.
pub(super) fn subtract(runs: &[Range<u64>], gone: &[Range<u64>]) -> Result<Runs, Range<u64>> {
    let mut left = Runs::with_capacity(runs.len() + gone.len());
    let mut gone = gone.iter().peekable();
    for run in runs {
        let mut from = run.start;
        while let Some(range) = gone.next_if(|gone| gone.start < run.end) {
            if range.start < from || range.end > run.end {
                return Err(range.clone());
            }
            if from < range.start {
                left.push(from..range.start);
            }
            from = range.end;
        }
        if from < run.end {
            left.push(from..run.end);
        }
    }
    match gone.next() {
        Some(range) => Err(range.clone()),
        None => Ok(left),
    }
}

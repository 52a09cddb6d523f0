//! Finds the prefix of a history that matches a volume after a power cut, possibly with a log.

use std::fmt;
use std::ops::RangeInclusive;

use super::history::{History, Prints, Promise, part};
use super::logs::Logs;
use super::rules::{DataRule, Rules};
use crate::manifest::{Content, Difference, Field, Manifest};
use crate::model::{InodeKey, compare};
use crate::script::{self, Op};

/// A legal state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Number of operations in the volume; the highest, if several numbers match. With a log, a minimum.
    pub prefix: usize,
    /// Whether a log contains parts of later operations.
    pub has_log: bool,
}

/// A volume in an illegal state.
#[derive(Clone, Debug)]
pub struct CrashFault {
    pub promise: Promise,
    /// The legal prefix with the fewest differences.
    pub nearest: usize,
    /// Differences from this prefix, which is on the left.
    pub differences: Vec<Difference>,
    /// A matching but illegal prefix: durable operations were lost, or operations were applied before they started.
    pub shows: Option<usize>,
    /// The reasons why it is not legal with a log either.
    pub of_log: Vec<String>,
}

const SHOWN: usize = 20;

impl fmt::Display for CrashFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Promise {
            at_least, at_most, ..
        } = self.promise;
        write!(f, "no prefix of {at_least} to {at_most} operations")?;
        if let Some(shows) = self.shows {
            write!(f, ", but one of {shows}")?;
        }
        write!(f, "; differences from that of {}:", self.nearest)?;
        for difference in self.differences.iter().take(SHOWN) {
            write!(f, "\n  {difference}")?;
        }
        if self.differences.len() > SHOWN {
            write!(f, "\n  ... and {} more", self.differences.len() - SHOWN)?;
        }
        for fault in self.of_log.iter().take(SHOWN) {
            write!(f, "\n  with a log: {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CrashFault {}

/// Judges a volume after a power cut. `shown` is its complete manifest.
pub fn judge_crash(
    history: &History,
    shown: &Manifest,
    promise: Promise,
    rules: &Rules,
) -> Result<Verdict, Box<CrashFault>> {
    let most = promise.at_most.max(promise.at_least).min(history.ops());
    let judge = Judge {
        history,
        shown: part(shown, &history.below),
        legal: promise.at_least.min(most)..=most,
        rules,
    };
    let prefix = judge.fitting(judge.legal.clone().rev());
    if let Some(prefix) = prefix
        && promise.synced.iter().all(|ops| *ops <= prefix)
    {
        return Ok(Verdict {
            prefix,
            has_log: false,
        });
    }
    let logs = Logs::since(history, &judge.shown, judge.legal.clone(), rules);
    let of_log = logs.map(|logs| {
        let mut faults = logs.lost_syncs(&promise);
        if prefix.is_none() {
            faults.extend(logs.faults());
        }
        faults
    });
    if of_log.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Verdict {
            prefix: prefix.unwrap_or(*judge.legal.start()),
            has_log: true,
        });
    }
    let differences = |ops| (ops, judge.differences(ops));
    let nearest = judge.legal.clone().rev().map(differences);
    let nearest = nearest.min_by_key(|(_, differences)| differences.len());
    let (nearest, differences) = nearest.unwrap_or((most, judge.differences(most)));
    let is_legal = |ops: &usize| judge.legal.contains(ops);
    let illegal = (0..=history.ops()).rev().filter(|ops| !is_legal(ops));
    Err(Box::new(CrashFault {
        promise,
        nearest,
        differences,
        shows: judge.fitting(illegal),
        of_log: of_log.unwrap_or_default(),
    }))
}

struct Judge<'a> {
    history: &'a History,
    shown: Manifest,
    legal: RangeInclusive<usize>,
    rules: &'a Rules,
}

impl Judge<'_> {
    fn fitting(&self, mut candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let shown = Prints::of(&self.shown);
        candidates.find(|ops| {
            let prints = self.history.prints(*ops);
            let may_fit = match self.rules.data {
                // The fingerprint includes ignored fields, so it cannot exclude a match.
                _ if !self.rules.ignored.is_empty() => true,
                DataRule::Prefix => prints.whole == shown.whole,
                _ => prints.without_data == shown.without_data,
            };
            may_fit && self.differences(*ops).is_empty()
        })
    }

    fn differences(&self, ops: usize) -> Vec<Difference> {
        let wanted = self.history.shown(ops);
        let mut differences = compare(&wanted, &self.shown, &self.rules.ignored);
        if self.rules.data != DataRule::Prefix {
            differences.retain(|difference| !self.is_excused(ops, difference));
        }
        differences
    }

    fn is_excused(&self, ops: usize, difference: &Difference) -> bool {
        let Difference::Field { path, field, .. } = difference else {
            return false;
        };
        if !matches!(field, Field::Content | Field::Size | Field::Mtime) {
            return false;
        }
        let full = script::path(path)
            .names()
            .fold(self.history.below.clone(), |path, name| path.join(name));
        let file = self.history.model(ops).file(&full);
        let Some((file, shown)) = file.zip(self.shown.get(path)) else {
            return false;
        };
        let size = shown.stat.size;
        if self.is_torn(ops, file, size) {
            return true;
        }
        let Content::File(digest) = &shown.content else {
            return false;
        };
        let was_so =
            |earlier: usize| self.history.model(earlier).bytes_of(file) == Some((size, *digest));
        let mut since = *self.legal.start()..=ops;
        self.rules.data == DataRule::Lagging
            && *field != Field::Mtime
            && (since.clone().any(was_so)
                || since
                    .clone()
                    .any(|earlier| self.is_overtaking(earlier, file))
                    && since.any(|earlier| self.is_between(earlier, file, size)))
    }

    /// Returns whether the operation after a prefix changes this file immediately, before its pending data is
    /// written.
    fn is_overtaking(&self, ops: usize, file: InodeKey) -> bool {
        let is_so = matches!(
            self.history.next(ops),
            Some(
                Op::Clone { .. }
                    | Op::CopyRange { .. }
                    | Op::Truncate { .. }
                    | Op::Fallocate { .. }
            )
        );
        is_so && self.is_changing(ops, file)
    }

    /// Returns whether the operation after a prefix changes this file.
    fn is_changing(&self, ops: usize, file: InodeKey) -> bool {
        let changed = self.history.next(ops).and_then(|op| op.changed_file());
        changed.and_then(|at| self.history.model(ops).file_of(at)) == Some(file)
            && ops < *self.legal.end()
    }

    /// Returns whether the file may have this size during the operation after a prefix.
    fn is_between(&self, ops: usize, file: InodeKey, size: u64) -> bool {
        let after = (ops + 1).min(*self.legal.end());
        let sizes = [ops, after].map(|ops| {
            let bytes = self.history.model(ops).bytes_of(file);
            bytes.map_or(0, |(size, _)| size)
        });
        (sizes[0].min(sizes[1])..=sizes[0].max(sizes[1])).contains(&size)
    }

    /// Returns whether the operation after the prefix changes this file, and the size is possible during it.
    fn is_torn(&self, ops: usize, file: InodeKey, size: u64) -> bool {
        self.is_changing(ops, file) && self.is_between(ops, file, size)
    }
}

//! Faults that are known: how many of each kind the sources had when a rule was made.
//!
//! A baseline is a small file of lines `KEY COUNT`, and of remarks that begin with `#`. Its numbers only fall.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

pub(crate) type Counts = BTreeMap<String, usize>;

pub(crate) struct Baseline {
    /// Relative to the workspace.
    pub(crate) path: &'static str,
    text: String,
    known: Counts,
}

/// A key that has another count than the baseline says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) known: usize,
    pub(crate) found: usize,
}

impl Baseline {
    /// A baseline that is not there knows no faults.
    pub(crate) fn read(root: &Path, path: &'static str) -> Baseline {
        Baseline::new(
            path,
            fs::read_to_string(root.join(path)).unwrap_or_default(),
        )
    }

    pub(crate) fn new(path: &'static str, text: String) -> Baseline {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let known = lines.filter_map(|line| {
            let (key, count) = line.rsplit_once(' ')?;
            Some((key.to_owned(), count.parse().ok()?))
        });
        Baseline {
            path,
            known: known.collect(),
            text,
        }
    }

    pub(crate) fn known(&self, key: &str) -> usize {
        self.known.get(key).copied().unwrap_or(0)
    }

    pub(crate) fn grown(&self, found: &Counts) -> Vec<Change> {
        let changes = found.iter().map(|(key, &found)| Change {
            key: key.clone(),
            known: self.known(key),
            found,
        });
        changes
            .filter(|change| change.found > change.known)
            .collect()
    }

    pub(crate) fn shrunk(&self, found: &Counts) -> Vec<Change> {
        let changes = self.known.iter().map(|(key, &known)| Change {
            key: key.clone(),
            known,
            found: found.get(key).copied().unwrap_or(0),
        });
        changes
            .filter(|change| change.found < change.known)
            .collect()
    }

    /// Writes the baseline with the lower one of the known and the found number of each key, and keeps its remarks.
    pub(crate) fn lower(&self, root: &Path, found: &Counts) -> io::Result<()> {
        let text = self.lowered(found);
        if text == self.text {
            return Ok(());
        }
        fs::write(root.join(self.path), text)
    }

    fn lowered(&self, found: &Counts) -> String {
        let remarks = self.text.lines().filter(|line| line.starts_with('#'));
        let mut text: String = remarks.flat_map(|line| [line, "\n"]).collect();
        for (key, &known) in &self.known {
            let count = known.min(found.get(key).copied().unwrap_or(0));
            if count > 0 {
                let _ = writeln!(text, "{key} {count}");
            }
        }
        text
    }
}

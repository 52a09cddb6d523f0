//! Baselines of known faults: the count of each kind at the introduction of a rule.
//!
//! A baseline is a small file of lines `KEY COUNT`, and of remarks that begin with `#`. Its counts may only fall.

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

/// A key whose count differs from the baseline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) known: usize,
    pub(crate) found: usize,
}

impl Baseline {
    /// Reads a baseline. A missing one has no faults.
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

    /// Moves the known faults of a moved file to its new path. `has` returns whether a file exists, by a key that
    /// begins with its path.
    pub(crate) fn follow_moves(&mut self, found: &Counts, has: impl Fn(&str) -> bool) {
        for (to, &count) in found {
            if self.known.contains_key(to) {
                continue;
            }
            let name = name_of_file(to);
            let is_gone = |key: &&String| name_of_file(key) == name && !has(path_of_file(key));
            let gone: Vec<String> = self.known.keys().filter(is_gone).cloned().collect();
            if let [from] = gone.as_slice()
                && count <= self.known(from)
            {
                self.known.remove(from);
                self.known.insert(to.clone(), count);
            }
        }
    }

    /// Writes the baseline with the minimum of the known and the found count of each key, and keeps its remarks.
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

/// Returns the path of a key: `a/b.rs sentences` -> `a/b.rs`.
fn path_of_file(key: &str) -> &str {
    key.split(' ').next().unwrap_or(key)
}

/// Returns the name of a key: `a/b.rs sentences` -> `b.rs sentences`.
fn name_of_file(key: &str) -> &str {
    let directory = path_of_file(key).rfind('/').map_or(0, |at| at + 1);
    &key[directory..]
}

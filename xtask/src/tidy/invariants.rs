//! Invariants in heads of files, by their tags.
//!
//! - TIDY-8: a tag is declared once, as `//! - NAME-N: ...`, and no comment names an undeclared tag.
//! - TIDY-9: a declared tag appears at the code that keeps it, in a comment or in an assert, and at a test. A tag
//!   that a test declares appears at least once elsewhere. A baseline has the missing places.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::baseline::{Baseline, Counts};
use crate::files::File;
use crate::source::{Kind, Piece};
use crate::tidy::{Counted, Fault, Finding};

/// Tags without a place: `TAG code 1` or `TAG test 1`.
const UNPLACED: &str = "xtask/src/tidy/unplaced.txt";

/// Standards that are written like a tag.
const STANDARDS: &[&str] = &["ISO", "RAID", "SHA", "UTF"];

/// A tag that a head declares, and the kinds of its other places.
struct Tag {
    file: String,
    line: usize,
    of_test: bool,
    at_code: bool,
    at_test: bool,
}

impl Tag {
    fn lacks(&self) -> Vec<&'static str> {
        // TIDY-9
        match (self.at_code, self.at_test) {
            (false, false) if self.of_test => vec!["place"],
            _ if self.of_test => vec![],
            (false, false) => vec!["code", "test"],
            (false, true) => vec!["code"],
            (true, false) => vec!["test"],
            (true, true) => vec![],
        }
    }
}

pub(super) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Counted {
    let mut tags = declared(files, findings);
    for file in files {
        note_uses(file, &mut tags, findings);
    }
    let baseline = Baseline::read(root, UNPLACED);
    let mut counts = Counts::new();
    for (name, tag) in &tags {
        for lacks in tag.lacks() {
            let key = format!("{name} {lacks}");
            if baseline.known(&key) == 0 {
                let fault = Fault::UnplacedTag {
                    line: tag.line,
                    tag: name.clone(),
                    lacks,
                };
                findings.push(Finding::new(tag.file.clone(), fault));
            }
            counts.insert(key, 1);
        }
    }
    Counted {
        baseline,
        counts,
        may_be_fewer: false,
    }
}

fn declared(files: &[File], findings: &mut Vec<Finding>) -> BTreeMap<String, Tag> {
    let mut tags: BTreeMap<String, Tag> = BTreeMap::new();
    for file in files {
        let path = file.path.display().to_string();
        for piece in pieces(file) {
            let Some(name) = declaration(file, piece) else {
                continue;
            };
            let line = piece.line;
            // TIDY-8
            if let Some(first) = tags.get(name) {
                let (tag, first) = (name.to_owned(), first.file.clone());
                let fault = Fault::RepeatedTag { line, tag, first };
                findings.push(Finding::new(path.clone(), fault));
                continue;
            }
            let tag = Tag {
                file: path.clone(),
                line,
                of_test: is_test(file, piece),
                at_code: false,
                at_test: false,
            };
            tags.insert(name.to_owned(), tag);
        }
    }
    tags
}

/// Collects the uses of tags in a file. Tags named in a head do not count as places, only those at code or tests.
fn note_uses(file: &File, tags: &mut BTreeMap<String, Tag>, findings: &mut Vec<Finding>) {
    for piece in pieces(file) {
        let of_test = is_test(file, piece);
        let own = declaration(file, piece);
        for name in tags_in(&file.text[piece.inside.clone()]) {
            let Some(tag) = tags.get_mut(name) else {
                let family = name.rsplit_once('-').map_or(name, |(family, _)| family);
                if piece.kind != Kind::String && !STANDARDS.contains(&family) {
                    let (line, tag) = (piece.line, name.to_owned());
                    let fault = Fault::UndeclaredTag { line, tag };
                    findings.push(Finding::new(file.path.display().to_string(), fault));
                }
                continue;
            };
            if own == Some(name) {
                continue;
            }
            if of_test {
                tag.at_test = true;
            } else if piece.kind != Kind::Inner {
                tag.at_code = true;
            }
        }
    }
}

fn pieces(file: &File) -> impl Iterator<Item = &Piece> {
    file.source.iter().flat_map(|source| &source.pieces)
}

/// Returns the tag that a head declares: `- NAME-N: ...` -> `NAME-N`.
fn declaration<'a>(file: &'a File, piece: &Piece) -> Option<&'a str> {
    if piece.kind != Kind::Inner {
        return None;
    }
    let text = file.text[piece.inside.clone()].trim_start();
    let (name, _) = text.strip_prefix("- ")?.split_once(':')?;
    (tags_in(name).next() == Some(name)).then_some(name)
}

/// Returns whether a piece belongs to tests. All of `sim` is for tests.
fn is_test(file: &File, piece: &Piece) -> bool {
    let mut parts = file.path.iter().map(|part| part.to_string_lossy());
    piece.in_test || parts.any(|part| matches!(&*part, "tests" | "tests.rs" | "fuzz" | "sim"))
}

/// Finds the tags in a text: words of capital letters and digits, joined by hyphens, with a number at the end.
fn tags_in(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words = text.split(move |c| !is_part(c));
    words.map(|word| word.trim_matches('-')).filter(|word| {
        let Some((family, number)) = word.rsplit_once('-') else {
            return false;
        };
        let is_name = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_uppercase())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        };
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_number && family.len() > 1 && family.split('-').all(is_name)
    })
}

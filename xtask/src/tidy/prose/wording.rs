//! Words that replace a noun or a name by a clause: `forgets what is dirty` for `discards the dirty data`.
//!
//! - TIDY-18: comments and `*.md` have none of `PATTERNS` beyond a baseline that only falls.
//!
//! Each pattern is counted by folder, in comments and in `*.md`. `cargo xtask wording` prints how often each occurs in
//! 10,000 words. Code in backticks is no prose.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use super::{blocks, paragraphs, prose};
use crate::baseline::{Baseline, Counts};
use crate::files::File;
use crate::tidy::{Counted, Fault, Finding};

/// `FOLDER PATTERN COUNT`.
const KNOWN: &str = "xtask/src/tidy/wording.txt";

/// Names of patterns, and sequences of words that each matches. `|` separates alternatives of one word.
const PATTERNS: &[(&str, &[&[&str]])] = &[
    ("what", &[&["what"]]),
    ("stands", &[&["stand|stands|stood|lie|lies|lay"]]),
    ("says", &[&["say|says|said"]]),
    ("asks", &[&["ask|asks|asked|asking"]]),
    ("comes", &[&["come|comes|came"]]),
    ("of-which", &[&["of|in|by", "which"]]),
    ("that-of", &[&["that|those", "of"]]),
    ("so-many", &[&["so", "many|much"]]),
    ("none", &[&["is|are|was|were|has|have|had", "none"]]),
    ("meets", &[&["meet|meets|met"]]),
    ("goes-on", &[&["go|goes|going|went", "on"]]),
    ("beside", &[&["beside"]]),
    ("tells", &[&["tell|tells|told|hear|hears|heard"]]),
    ("any-more", &[&["any|no", "more"]]),
    (
        "meanwhile",
        &[&["meanwhile"], &["anew"], &["let|lets|letting", "go", "of"]],
    ),
];

/// The pattern of a summary that has somebody do something: `Has parts of two files share their extents`.
const HAS_DO: &str = "has-do";

pub(in crate::tidy) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Counted {
    let mut counts = Counts::new();
    let mut faults: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    for file in files {
        let path = file.path.display().to_string();
        for (line, pattern) in hits(file) {
            let key = format!("{} {pattern}", folder(&file.path));
            *counts.entry(key.clone()).or_default() += 1;
            let fault = Fault::CrookedWording { line, pattern };
            let found = faults.entry(key).or_default();
            found.push(Finding::new(path.clone(), fault));
        }
    }
    let baseline = Baseline::read(root, KNOWN);
    for (key, found) in faults {
        // TIDY-18
        if found.len() > baseline.known(&key) {
            findings.extend(found);
        }
    }
    Counted {
        baseline,
        counts,
        may_be_fewer: true,
    }
}

/// Prints how often each pattern occurs in 10,000 words.
pub(in crate::tidy) fn print_rates(files: &[File]) {
    let words: usize = files.iter().map(|file| words(file).len()).sum();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, pattern) in files.iter().flat_map(hits) {
        *counts.entry(pattern).or_default() += 1;
    }
    println!("{words} words; hits, and hits in 10,000 words");
    let names = PATTERNS.iter().map(|(name, _)| *name);
    for name in names.chain([HAS_DO]) {
        let count = counts.get(name).copied().unwrap_or(0);
        let rate = count as f64 * 10_000.0 / words.max(1) as f64;
        println!("{name:10} {count:6} {rate:7.1}");
    }
}

/// Returns the part of the tree whose counts go together: `crates/tree`, `docs`, `README.md`.
fn folder(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    match parts.as_slice() {
        [top, name, ..] if top == "crates" => format!("{top}/{name}"),
        [top, ..] => top.to_string(),
        [] => String::new(),
    }
}

/// Finds the patterns in a file.
fn hits(file: &File) -> Vec<(usize, &'static str)> {
    let words = words(file);
    let mut hits = Vec::new();
    for at in 0..words.len() {
        for (name, sequences) in PATTERNS {
            let is_here = |sequence: &&&[&str]| {
                let here = words[at..].iter().zip(sequence.iter());
                words.len() - at >= sequence.len()
                    && here.into_iter().all(|((_, word), alternatives)| {
                        alternatives.split('|').any(|known| known == word)
                    })
            };
            if sequences.iter().any(|sequence| is_here(&sequence)) {
                hits.push((words[at].0, *name));
            }
        }
    }
    let Some(source) = &file.source else {
        return hits;
    };
    let firsts = blocks(&file.text, source).into_iter();
    for (line, text) in firsts.filter_map(|block| block.first().copied()) {
        let mut words = text.split_whitespace();
        let has = matches!(words.next(), Some("Has" | "Have"));
        if has && !matches!(words.next(), Some("to" | "been" | "no" | "none")) {
            hits.push((line, HAS_DO));
        }
    }
    hits
}

/// Returns the words of comments or of a page, in lower case and with the lines that have them.
fn words(file: &File) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for paragraph in prose(file).iter().flat_map(|block| paragraphs(block)) {
        let mut in_code = false;
        for (line, text) in paragraph {
            for word in text.split_whitespace() {
                let was_in_code = in_code;
                in_code ^= word.bytes().filter(|&byte| byte == b'`').count() % 2 == 1;
                let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
                if !was_in_code && !word.contains('`') && bare.contains(char::is_alphabetic) {
                    words.push((line, bare.to_lowercase()));
                }
            }
        }
    }
    words
}

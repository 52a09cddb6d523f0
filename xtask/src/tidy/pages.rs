//! References in pages: links to files and headings, and tests named as evidence.
//!
//! - TIDY-12: a link in `*.md` leads to an existing file, folder or heading.
//! - TIDY-13: a name of `MANY_WORDS` words or more, in backticks in `*.md`, is the name of a function, as pages name
//!   tests.
//!
//! Not here: web addresses, which cannot be checked offline.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::files::File;
use crate::tidy::{Fault, Finding};

/// Names of options and fields have fewer words.
const MANY_WORDS: usize = 5;

pub(super) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) {
    let functions = functions(files);
    let pages = || files.iter().filter(|file| is_page(&file.path));
    let headings: BTreeMap<&Path, BTreeSet<String>> = pages()
        .map(|page| (page.path.as_path(), headings(&page.text)))
        .collect();
    let is_there = |path: &Path| root.join(path).exists();
    for page in pages() {
        let dead = dead_links(page, &headings, is_there).into_iter();
        let faults = dead.chain(unknown_functions(&page.text, &functions));
        let path = page.path.display().to_string();
        findings.extend(faults.map(|fault| Finding::new(path.clone(), fault)));
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "md")
}

/// Collects the names of all functions of the workspace.
fn functions(files: &[File]) -> BTreeSet<&str> {
    let sources = files.iter().filter(|file| file.source.is_some());
    sources
        .flat_map(|file| file.text.split("fn ").skip(1))
        .map(|rest| &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())])
        .collect()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((at + 1, line))
    })
}

/// Collects the anchors of a page's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// Returns the anchor that a heading gets: `Life of a read` -> `life-of-a-read`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

fn dead_links(
    page: &File,
    headings: &BTreeMap<&Path, BTreeSet<String>>,
    is_there: impl Fn(&Path) -> bool,
) -> Vec<Fault> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let leads_somewhere = |target: &str| {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = match path {
            "" => page.path.clone(),
            path => lexical(&folder.join(path)),
        };
        match headings.get(path.as_path()) {
            Some(headings) => anchor.is_empty() || headings.contains(anchor),
            None => is_there(&path),
        }
    };
    let links = prose(&page.text).flat_map(|(line, text)| {
        let targets = text.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split_once(')'));
        targets.map(move |(target, _)| (line, target))
    });
    // TIDY-12
    let dead = links.filter(|(_, target)| !target.contains("://") && !leads_somewhere(target));
    dead.map(|(line, target)| Fault::DeadLink {
        line,
        target: target.to_owned(),
    })
    .collect()
}

/// Resolves `..` in a path: `docs/design/../check.md` -> `docs/check.md`.
fn lexical(path: &Path) -> PathBuf {
    let mut lexical = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = lexical.pop(),
            Component::CurDir => {}
            other => lexical.push(other),
        }
    }
    lexical
}

fn unknown_functions(text: &str, functions: &BTreeSet<&str>) -> Vec<Fault> {
    let names = prose(text).flat_map(|(line, text)| {
        let code = text.split('`').skip(1).step_by(2);
        code.map(move |name| (line, name))
    });
    let is_long = |name: &str| {
        let words = name.split('_').collect::<Vec<_>>();
        words.len() >= MANY_WORDS && words.iter().all(|word| !word.is_empty())
    };
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    // TIDY-13
    let unknown = names.filter(|(_, name)| {
        is_long(name) && name.chars().all(is_lower) && !functions.contains(name)
    });
    unknown
        .map(|(line, name)| Fault::UnknownFunction {
            line,
            name: name.to_owned(),
        })
        .collect()
}

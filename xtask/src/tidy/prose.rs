//! The prose of documentation, as far as a program can check it.
//!
//! - TIDY-10: a summary is clear by itself and names its subject: it does not begin with one of `STARTS`.
//! - TIDY-11: a sentence has at most `MOST_IN_DOCS` words in the comments of code, `MOST_IN_TEXTS` in `*.md`.
//! - TIDY-14: a sentence names its actor. It does not begin with one of `FACELESS`, and does not contain one as the
//!   actor. This applies to all comments and to `*.md`.
//! - TIDY-15: the summary of a function begins with a verb in the third person (`verbs`).
//! - TIDY-16: a paragraph has at most `MOST_IN_PARAGRAPHS` words, in comments and in `*.md`.
//! - TIDY-17: the name of a function names its actor. It contains none of `FACELESS_WORDS`. It does not begin with
//!   `what`, nor with `of` if it is a sentence.
//!
//! A baseline has the known faults, by file. Not here: single words (`wording`).

#[cfg(test)]
mod tests;
mod verbs;
pub(super) mod wording;

use std::path::Path;

use crate::baseline::{Baseline, Counts};
use crate::files::File;
use crate::source::{Kind, Source};
use crate::tidy::{Counted, Fault, Finding};

const MOST_IN_DOCS: usize = 25;
const MOST_IN_TEXTS: usize = 35;
const MOST_IN_PARAGRAPHS: usize = 120;

/// First words of summaries that depend on other text, hide the actor, or name no subject.
const STARTS: &[&str] = &["The same", "Who", "Whoever", "Whose", "What", "Of", "As"];

/// First words of sentences that do not name the actor.
const FACELESS: &[&str] = &["Who", "Whoever", "Whose", "What", "Whatever"];

/// Words of a name that may begin with `of`, as `of_open`.
const MOST_OF_SHORT_NAMES: usize = 3;

/// Words of a name that do not name the actor.
const FACELESS_WORDS: &[&str] = &["who", "whoever"];

/// Words that end with a full stop inside of a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "cf.", "vs.", "etc.", "..."];

/// The baseline: `FILE summaries COUNT`, `FILE sentences COUNT` and others.
const KNOWN: &str = "xtask/src/tidy/prose.txt";

pub(super) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Counted {
    let mut counts = Counts::new();
    let mut faults = Vec::new();
    for file in files {
        let path = file.path.display().to_string();
        for (rule, found) in [
            ("summaries", summaries(file)),
            ("sentences", sentences(file)),
            ("actors", actors(file)),
            ("paragraphs", long_paragraphs(file)),
            ("names", faceless_names(file)),
            ("verbs", verbs::faults(file)),
        ] {
            if !found.is_empty() {
                let key = format!("{path} {rule}");
                counts.insert(key.clone(), found.len());
                faults.push((path.clone(), key, found));
            }
        }
    }
    let mut baseline = Baseline::read(root, KNOWN);
    baseline.follow_moves(&counts, |path| {
        files.iter().any(|file| file.path == Path::new(path))
    });
    for (path, key, found) in faults {
        if found.len() > baseline.known(&key) {
            findings.extend(
                found
                    .into_iter()
                    .map(|fault| Finding::new(path.clone(), fault)),
            );
        }
    }
    Counted {
        baseline,
        counts,
        may_be_fewer: true,
    }
}

/// Finds summaries that are not clear by themselves.
fn summaries(file: &File) -> Vec<Fault> {
    let Some(source) = &file.source else {
        return Vec::new();
    };
    let first = blocks(&file.text, source).into_iter();
    let first = first.filter_map(|block| block.first().copied());
    first
        .filter_map(|(line, text)| {
            // TIDY-10
            let start = *STARTS.iter().find(|start| begins_with(text, start))?;
            Some(Fault::LeaningSummary { line, start })
        })
        .collect()
}

fn begins_with(text: &str, start: &str) -> bool {
    let rest = text.trim_start().strip_prefix(start);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn sentences(file: &File) -> Vec<Fault> {
    let most = match &file.source {
        Some(_) => MOST_IN_DOCS,
        None => MOST_IN_TEXTS,
    };
    let blocks = prose(file);
    let paragraphs = blocks.iter().flat_map(|block| paragraphs(block));
    let sentences = paragraphs.flat_map(|paragraph| lengths(&paragraph));
    // TIDY-11
    let long = sentences.filter(|(_, words)| *words > most);
    long.map(|(line, words)| Fault::LongSentence { line, words, most })
        .collect()
}

/// Finds paragraphs that are too long.
fn long_paragraphs(file: &File) -> Vec<Fault> {
    let blocks = prose(file);
    let paragraphs = blocks.iter().flat_map(|block| paragraphs(block));
    paragraphs
        .filter_map(|paragraph| {
            let &(line, _) = paragraph.first()?;
            let words = lengths(&paragraph).iter().map(|(_, words)| words).sum();
            // TIDY-16
            (words > MOST_IN_PARAGRAPHS).then_some(Fault::LongParagraph { line, words })
        })
        .collect()
}

/// Finds sentences that do not name the actor.
fn actors(file: &File) -> Vec<Fault> {
    let mut faults = Vec::new();
    for paragraph in prose(file).iter().flat_map(|block| paragraphs(block)) {
        let mut begins = true;
        for &(line, text) in &paragraph {
            for word in text.split_whitespace() {
                let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
                // TIDY-14
                if begins && FACELESS.contains(&bare) || bare == "whoever" {
                    faults.push(Fault::FacelessActor { line });
                }
                begins = ends_sentence(word);
            }
        }
    }
    faults
}

/// Finds functions whose names do not name the actor.
fn faceless_names(file: &File) -> Vec<Fault> {
    let Some(source) = &file.source else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        let Some((_, after)) = line.split_once("fn ") else {
            continue;
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = after.split(|c| !is_of_name(c)).next().unwrap_or_default();
        // TIDY-17
        let is_faceless = name.split('_').any(|word| FACELESS_WORDS.contains(&word));
        let is_sentence = name.split('_').count() > MOST_OF_SHORT_NAMES;
        if is_faceless || name.starts_with("what_") || is_sentence && name.starts_with("of_") {
            faults.push(Fault::FacelessName {
                line: at + 1,
                name: name.to_owned(),
            });
        }
    }
    faults
}

/// Returns all comments of code, and the lines of `*.md`.
fn prose(file: &File) -> Vec<Lines<'_>> {
    match &file.source {
        Some(source) => comments(&file.text, source, |kind| kind != Kind::String),
        None => texts(file),
    }
}

/// Lines of text with their numbers.
type Lines<'a> = Vec<(usize, &'a str)>;

/// Returns the lines of `*.md`, and nothing of other files.
fn texts(file: &File) -> Vec<Lines<'_>> {
    if file.path.extension().is_none_or(|ext| ext != "md") {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate();
    vec![lines.map(|(at, line)| (at + 1, line)).collect()]
}

/// Returns the doc comments, one for each documented item.
fn blocks<'a>(text: &'a str, source: &Source) -> Vec<Lines<'a>> {
    comments(text, source, |kind| {
        matches!(kind, Kind::Inner | Kind::Outer)
    })
}

/// Returns the comments of these kinds, with consecutive lines of one kind as one comment.
fn comments<'a>(
    text: &'a str,
    source: &Source,
    is_wanted: impl Fn(Kind) -> bool,
) -> Vec<Lines<'a>> {
    let mut blocks: Vec<(Kind, Lines<'a>)> = Vec::new();
    for piece in &source.pieces {
        if !is_wanted(piece.kind) {
            continue;
        }
        let line = (piece.line, &text[piece.inside.clone()]);
        match blocks.last_mut() {
            Some((kind, lines))
                if *kind == piece.kind
                    && lines.last().is_some_and(|last| last.0 + 1 == piece.line) =>
            {
                lines.push(line);
            }
            _ => blocks.push((piece.kind, vec![line])),
        }
    }
    blocks.into_iter().map(|(_, lines)| lines).collect()
}

/// Returns the paragraphs, list items and cells of tables of a text in Markdown, without headings and code.
fn paragraphs<'a>(lines: &[(usize, &'a str)]) -> Vec<Lines<'a>> {
    let mut paragraphs: Vec<Lines<'a>> = vec![Vec::new()];
    let mut in_code = false;
    for &(number, line) in lines {
        let text = line.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            paragraphs.push(Vec::new());
        } else if in_code {
            continue;
        } else if text.is_empty() || text.starts_with('#') {
            paragraphs.push(Vec::new());
        } else if text.starts_with('|') {
            let cells = text.split('|').map(|cell| vec![(number, cell)]);
            paragraphs.extend(cells);
            paragraphs.push(Vec::new());
        } else {
            let item = after_list_marker(text);
            if item.is_some() {
                paragraphs.push(Vec::new());
            }
            if let Some(last) = paragraphs.last_mut() {
                last.push((number, item.unwrap_or(text)));
            }
        }
    }
    paragraphs
}

/// Removes the marker of a list item: `- item` or `12. item` -> `item`.
fn after_list_marker(text: &str) -> Option<&str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        0 => text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")),
        _ => text[digits..].strip_prefix(". "),
    }
}

/// Returns the first line and the number of words of each sentence. Code in backticks counts as one word.
fn lengths(paragraph: &[(usize, &str)]) -> Vec<(usize, usize)> {
    let mut lengths = Vec::new();
    let mut sentence: Option<(usize, usize)> = None;
    let mut in_code = false;
    for &(line, text) in paragraph {
        for word in text.split_whitespace() {
            let was_in_code = in_code;
            in_code ^= word.bytes().filter(|&b| b == b'`').count() % 2 == 1;
            let (_, words) = sentence.get_or_insert((line, 0));
            if !was_in_code && word.contains(char::is_alphanumeric) {
                *words += 1;
            }
            if !in_code && ends_sentence(word) {
                lengths.extend(sentence.take());
            }
        }
    }
    lengths.extend(sentence);
    lengths
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', '"', '\'', '*', '_', ']']);
    let bare = word.trim_start_matches(['(', '"', '*', '_', '[']);
    word.ends_with(['.', '?', '!']) && !ABBREVIATIONS.contains(&bare)
}

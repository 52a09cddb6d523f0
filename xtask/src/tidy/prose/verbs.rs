//! Summaries of functions, which begin with a verb in the third person (TIDY-15).

use crate::files::File;
use crate::source::{Kind, Source};
use crate::tidy::Fault;

/// Words between the attributes of a function and `fn`, except for the ABI of `extern`.
const MODIFIERS: &[&str] = &["const", "async", "unsafe", "extern", "default"];

/// Words that end like a verb but are not verbs, or not used as verbs here.
const NO_VERBS: &[&str] = &[
    "Always",
    "Afterwards",
    "As",
    "Besides",
    "Its",
    "Less",
    "Others",
    "Perhaps",
    "Plus",
    "Sometimes",
    "This",
    "Those",
    "Us",
    // Nouns that summaries have begun with.
    "Arguments",
    "Attributes",
    "Blocks",
    "Bytes",
    "Callers",
    "Capabilities",
    "Chains",
    "Choices",
    "Chunks",
    "Columns",
    "Contents",
    "Counters",
    "Devices",
    "Differences",
    "Directories",
    "Distances",
    "Entries",
    "Errors",
    "Events",
    "Extents",
    "Facts",
    "Failures",
    "Faults",
    "Features",
    "Fields",
    "Files",
    "Flags",
    "Folders",
    "Groups",
    "Headers",
    "Ids",
    "Inodes",
    "Instructions",
    "Items",
    "Jobs",
    "Keys",
    "Kinds",
    "Letters",
    "Lines",
    "Means",
    "Medians",
    "Members",
    "Nanoseconds",
    "Neighbours",
    "Newlines",
    "Nodes",
    "Numbers",
    "Objects",
    "Offsets",
    "Operations",
    "Options",
    "Parts",
    "Paths",
    "Pieces",
    "Positions",
    "Processes",
    "Profiles",
    "Programs",
    "Ranges",
    "Records",
    "References",
    "Regions",
    "Requests",
    "Roots",
    "Rows",
    "Scripts",
    "Seconds",
    "Sections",
    "Sectors",
    "Sizes",
    "Slots",
    "Snapshots",
    "Streams",
    "Stripes",
    "Subvolumes",
    "Summaries",
    "Sums",
    "Tabs",
    "Tags",
    "Things",
    "Threads",
    "Times",
    "Trees",
    "Types",
    "Units",
    "Users",
    "Values",
    "Verbs",
    "Volumes",
    "Warnings",
    "Ways",
    "Words",
];

/// Finds functions whose summary does not begin with a verb. Tests are exempt: their names state a fact, and their
/// comments are not summaries.
pub(super) fn faults(file: &File) -> Vec<Fault> {
    let Some(source) = &file.source else {
        return Vec::new();
    };
    let blocks = super::comments(&file.text, source, |kind| kind == Kind::Outer);
    let faults = blocks.iter().filter_map(|block| {
        let (&(line, first), &(last, _)) = (block.first()?, block.last()?);
        let word = first.split_whitespace().next()?;
        // TIDY-15
        let is_fault = documents_function(source, last) && !is_tag(word) && !is_verb(word);
        is_fault.then_some(Fault::SummaryWithoutVerb { line })
    });
    faults.collect()
}

fn is_verb(word: &str) -> bool {
    let word = word.trim_end_matches([',', '.', ':']);
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_uppercase)
        && letters.all(|letter| letter.is_ascii_lowercase() || letter == '-')
        && word.ends_with('s')
        && !NO_VERBS.contains(&word)
}

/// Returns whether a word is a tag of an invariant, which precedes a test or a check.
fn is_tag(word: &str) -> bool {
    let word = word.trim_end_matches([',', '.', ':']);
    word.contains('-') && !word.chars().any(|letter| letter.is_ascii_lowercase())
}

/// Returns whether the item after a line is a function, and not a test.
fn documents_function(source: &Source, line: usize) -> bool {
    let mut code = source.code.as_str();
    for _ in 0..line {
        let Some(end) = code.find('\n') else {
            return false;
        };
        code = &code[end + 1..];
    }
    code = code.trim_start();
    while let Some(attribute) = code.strip_prefix("#[") {
        if attribute.starts_with("test]") {
            return false;
        }
        code = after_brackets(attribute).trim_start();
    }
    if let Some(public) = code.strip_prefix("pub") {
        code = public.trim_start();
        if code.starts_with('(') {
            code = code.split_once(')').map_or("", |(_, rest)| rest);
        }
    }
    let mut words = code.split_whitespace();
    let first = words.find(|word| !MODIFIERS.contains(word) && !word.starts_with('"'));
    first == Some("fn")
}

/// Returns the text after the matching closing bracket.
fn after_brackets(code: &str) -> &str {
    let mut open = 1;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'[' => open += 1,
            b']' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return &code[at + 1..];
        }
    }
    ""
}

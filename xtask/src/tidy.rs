//! Rules of the project that no compiler checks.
//!
//! - TIDY-1: every Rust file opens with its role, a `//!` line.
//! - TIDY-2: a Rust file has at most `MAX_LINES` lines.
//! - TIDY-3: no file contains leftovers such as debugging macros (`LEFTOVERS`).
//! - TIDY-4: a crate names only crates below it (`LAYERS`); `sim` appears among dev-dependencies only, which may also
//!   include some crates that are not below (`is_for_tests`).
//! - TIDY-5: no trailing white space, no tabs in Rust files, a newline at the end.
//! - TIDY-6: no file has a vague name (`utils`, `misc`, `common`, `helpers`).
//!
//! Not here: the order of the modules of a crate (`layers`), circles of files (`imports::circles`), tags such as these
//! (`invariants`), sentences (`prose`), references (`pages`).

mod invariants;
mod layers;
mod pages;
mod prose;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use layers::{UPWARD, is_upward, upward};

use crate::baseline::{Baseline, Change, Counts};
use crate::files;
use crate::imports::circles;

const MAX_LINES: usize = 800;

/// Each layer and the layers that it may name.
const LAYERS: &[(&str, &[&str])] = &[
    ("format", &[]),
    ("device", &["format"]),
    ("assemble", &["format", "device"]),
    ("spill", &[]),
    ("tree", &["format", "device"]),
    ("storage", &["format", "device", "tree"]),
    ("fs", &["format", "device", "tree", "storage"]),
    ("mkfs", &["format", "device", "spill", "tree"]),
    ("stream", &["format", "device", "spill", "tree", "fs"]),
    ("check", &["format", "device", "spill", "tree"]),
    (
        "maintenance",
        &["format", "device", "tree", "storage", "fs"],
    ),
    ("fuse-server", &[]),
    (
        "fuse",
        &[
            "format",
            "device",
            "tree",
            "fs",
            "maintenance",
            "fuse-server",
        ],
    ),
    (
        "ubtrfs",
        &[
            "format",
            "device",
            "assemble",
            "spill",
            "fs",
            "maintenance",
            "mkfs",
            "stream",
            "check",
        ],
    ),
    ("c", &["ubtrfs"]),
    ("python", &["ubtrfs"]),
    (
        "cli",
        &[
            "format", "device", "assemble", "tree", "fs", "mkfs", "stream", "check", "fuse",
            "ubtrfs",
        ],
    ),
    ("sim", &["format", "device", "mkfs"]),
];

/// Spelled in two parts, so that this file passes its own check.
const LEFTOVERS: &[&str] = &[
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!"),
    concat!("FIX", "ME"),
];

const VAGUE_NAMES: &[&str] = &["utils", "util", "misc", "common", "helpers", "helper"];

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    NoRole,
    TooLong {
        lines: usize,
    },
    Leftover {
        line: usize,
        word: &'static str,
    },
    Upward {
        line: usize,
        names: String,
    },
    SimInProduct {
        line: usize,
    },
    UnknownLayer {
        name: String,
    },
    TrailingSpace {
        line: usize,
    },
    Tab {
        line: usize,
    },
    NoFinalNewline,
    VagueName,
    UpwardImport {
        line: usize,
        import: String,
    },
    UnlistedModule {
        module: String,
    },
    StaleModule {
        module: String,
    },
    UndeclaredTag {
        line: usize,
        tag: String,
    },
    RepeatedTag {
        line: usize,
        tag: String,
        first: String,
    },
    UnplacedTag {
        line: usize,
        tag: String,
        lacks: &'static str,
    },
    LeaningSummary {
        line: usize,
        start: &'static str,
    },
    FacelessActor {
        line: usize,
    },
    SummaryWithoutVerb {
        line: usize,
    },
    LongSentence {
        line: usize,
        words: usize,
        most: usize,
    },
    LongParagraph {
        line: usize,
        words: usize,
    },
    FacelessName {
        line: usize,
        name: String,
    },
    CrookedWording {
        line: usize,
        pattern: &'static str,
    },
    DeadLink {
        line: usize,
        target: String,
    },
    UnknownFunction {
        line: usize,
        name: String,
    },
    MoreThanKnown(Change),
    FewerThanKnown(Change),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoRole => write!(f, "1: does not open with its role (//!)"),
            Fault::TooLong { lines } => write!(f, "{lines}: more than {MAX_LINES} lines"),
            Fault::Leftover { line, word } => write!(f, "{line}: {word} is left over"),
            Fault::Upward { line, names } => {
                write!(f, "{line}: names {names}, which is not below it")
            }
            Fault::SimInProduct { line } => {
                write!(f, "{line}: ubtrfs-sim is for dev-dependencies only")
            }
            Fault::UnknownLayer { name } => {
                write!(f, "1: layer {name} is not in the list of layers (xtask)")
            }
            Fault::TrailingSpace { line } => write!(f, "{line}: trailing white space"),
            Fault::Tab { line } => write!(f, "{line}: a tab"),
            Fault::NoFinalNewline => write!(f, "1: no newline at the end of the file"),
            Fault::VagueName => write!(f, "1: name the file for its subject"),
            Fault::UpwardImport { line, import } => {
                write!(f, "{line}: {import}, which is not a layer below")
            }
            Fault::UnlistedModule { module } => {
                write!(f, "1: {module} is not in the order of modules (xtask)")
            }
            Fault::StaleModule { module } => {
                write!(
                    f,
                    "1: {module} is in the order of modules (xtask) and nowhere else"
                )
            }
            Fault::UndeclaredTag { line, tag } => {
                write!(f, "{line}: no head declares {tag}")
            }
            Fault::RepeatedTag { line, tag, first } => {
                write!(f, "{line}: {first} declares {tag} as well")
            }
            Fault::UnplacedTag { line, tag, lacks } => {
                write!(f, "{line}: {tag} stands at no {lacks}")
            }
            Fault::LeaningSummary { line, start } => {
                write!(f, "{line}: a summary begins with {start:?}")
            }
            Fault::FacelessActor { line } => {
                write!(f, "{line}: a sentence that does not name who acts")
            }
            Fault::SummaryWithoutVerb { line } => {
                write!(
                    f,
                    "{line}: the summary of a function does not begin with a verb (Returns, Removes)"
                )
            }
            Fault::LongSentence { line, words, most } => {
                write!(f, "{line}: a sentence has {words} words, more than {most}")
            }
            Fault::LongParagraph { line, words } => {
                write!(f, "{line}: a paragraph has {words} words")
            }
            Fault::FacelessName { line, name } => {
                write!(f, "{line}: {name} does not name who acts")
            }
            Fault::CrookedWording { line, pattern } => {
                write!(
                    f,
                    "{line}: the wording {pattern}, and no more of it are known in this folder"
                )
            }
            Fault::DeadLink { line, target } => {
                write!(f, "{line}: {target} is not there")
            }
            Fault::UnknownFunction { line, name } => {
                write!(f, "{line}: no function is named {name}")
            }
            Fault::MoreThanKnown(Change { key, known, found }) => {
                write!(f, "1: {key}: {found}, and {known} are known")
            }
            Fault::FewerThanKnown(Change { key, known, found }) => {
                write!(
                    f,
                    "1: {key}: {found}, and {known} are known: lower them by `cargo xtask tidy --lower-baselines`"
                )
            }
        }
    }
}

/// A fault, with its file.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    fault: Fault,
}

impl Finding {
    fn new(path: impl Into<String>, fault: Fault) -> Finding {
        let path = path.into();
        Finding { path, fault }
    }
}

/// A rule whose known faults are in a baseline.
struct Counted {
    baseline: Baseline,
    counts: Counts,
    /// Whether the baseline may have more faults than found; it is lowered occasionally.
    may_be_fewer: bool,
}

/// Checks the workspace. With `lowers`, first lowers counts of baselines that are too high.
pub(crate) fn run(root: &Path, lowers: bool) -> ExitCode {
    let files = match files::read_all(root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings = Vec::new();
    for file in &files {
        let path = file.path.display().to_string();
        let faults = check(&file.path, &file.text).into_iter();
        findings.extend(faults.map(|fault| Finding::new(path.clone(), fault)));
    }
    pages::check(root, &files, &mut findings);
    let counted = [
        layers::check(root, &files, &mut findings),
        invariants::check(root, &files, &mut findings),
        prose::check(root, &files, &mut findings),
        prose::wording::check(root, &files, &mut findings),
        Counted {
            baseline: Baseline::read(root, circles::CIRCLES),
            counts: circles::counts(&circles::find(&files)),
            may_be_fewer: true,
        },
    ];
    for rule in &counted {
        if let Err(error) = check_counts(root, rule, lowers, &mut findings) {
            eprintln!("tidy: {}: {error}", rule.baseline.path);
            return ExitCode::FAILURE;
        }
    }
    for Finding { path, fault } in &findings {
        eprintln!("{path}:{fault}");
    }
    println!("tidy: {} files, {} faults", files.len(), findings.len());
    if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints how often comments and pages have each pattern of wording.
pub(crate) fn print_wording(root: &Path) -> ExitCode {
    match files::read_all(root) {
        Ok(files) => {
            prose::wording::print_rates(&files);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("wording: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check_counts(
    root: &Path,
    rule: &Counted,
    lowers: bool,
    findings: &mut Vec<Finding>,
) -> std::io::Result<()> {
    let Counted {
        baseline,
        counts,
        may_be_fewer,
    } = rule;
    for change in baseline.grown(counts) {
        findings.push(Finding::new(baseline.path, Fault::MoreThanKnown(change)));
    }
    if lowers {
        return baseline.lower(root, counts);
    }
    let fewer = baseline.shrunk(counts);
    if *may_be_fewer && !fewer.is_empty() {
        println!(
            "tidy: {} numbers of {} can be lowered: cargo xtask tidy --lower-baselines",
            fewer.len(),
            baseline.path
        );
    } else {
        let faults = fewer.into_iter().map(Fault::FewerThanKnown);
        findings.extend(faults.map(|fault| Finding::new(baseline.path, fault)));
    }
    Ok(())
}

fn check(path: &Path, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    check_lines(text, &mut faults);
    if path.extension().is_some_and(|ext| ext == "rs") {
        check_rust(path, text, &mut faults);
    }
    if let Some(layer) = layer_of_manifest(path) {
        check_layer(&layer, text, &mut faults);
    }
    faults
}

fn check_lines(text: &str, faults: &mut Vec<Fault>) {
    for (at, line) in text.split('\n').enumerate() {
        // TIDY-5
        if line.ends_with([' ', '\t', '\r']) {
            faults.push(Fault::TrailingSpace { line: at + 1 });
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(Fault::NoFinalNewline);
    }
}

fn check_rust(path: &Path, text: &str, faults: &mut Vec<Fault>) {
    // TIDY-1
    if !text.starts_with("//!") {
        faults.push(Fault::NoRole);
    }
    let lines = text.lines().count();
    // TIDY-2
    if lines > MAX_LINES {
        faults.push(Fault::TooLong { lines });
    }
    for (at, line) in text.lines().enumerate() {
        // TIDY-3
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            faults.push(Fault::Leftover { line: at + 1, word });
        }
        if line.contains('\t') {
            faults.push(Fault::Tab { line: at + 1 });
        }
    }
    let stem = path.file_stem().unwrap_or_default();
    let dir = path.parent().and_then(Path::file_name).unwrap_or_default();
    // TIDY-6
    if VAGUE_NAMES.iter().any(|name| stem == *name || dir == *name) {
        faults.push(Fault::VagueName);
    }
}

/// Returns the crate of a manifest: `crates/NAME/Cargo.toml` -> `NAME`.
fn layer_of_manifest(path: &Path) -> Option<String> {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let (crates, name, file) = (parts.next()?, parts.next()?, parts.next()?);
    (crates == "crates" && file == "Cargo.toml").then(|| name.into_owned())
}

fn check_layer(layer: &str, manifest: &str, faults: &mut Vec<Fault>) {
    let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        faults.push(Fault::UnknownLayer {
            name: layer.to_owned(),
        });
        return;
    };
    let mut in_dev = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            in_dev = line.contains("dev-dependencies");
        }
        let Some(names) = dependency(line) else {
            continue;
        };
        // TIDY-4
        if names == "sim" {
            if !in_dev {
                faults.push(Fault::SimInProduct { line: at + 1 });
            }
        } else if names != layer
            && !below.contains(&names)
            && !(in_dev && is_for_tests(layer, names))
        {
            faults.push(Fault::Upward {
                line: at + 1,
                names: names.to_owned(),
            });
        }
    }
}

/// Returns whether the tests of a layer may name another one that is not below it. Tests make volumes, check them,
/// and read volumes made by `mkfs`.
fn is_for_tests(layer: &str, names: &str) -> bool {
    matches!((layer, names), (_, "check" | "mkfs") | ("mkfs", "fs"))
}

/// Returns the layer that a line depends on: `ubtrfs-tree = ...`, `ubtrfs-tree.workspace = true` or
/// `[dependencies.ubtrfs-tree]` -> `tree`. The library is named `ubtrfs`, without a suffix.
fn dependency(line: &str) -> Option<&str> {
    let line = match line.strip_prefix('[') {
        Some(table) => table.split_once("dependencies.")?.1,
        None => line,
    };
    let name = line.trim_start_matches('"');
    let end = name
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .unwrap_or(name.len());
    match &name[..end] {
        library @ "ubtrfs" => Some(library),
        name => name.strip_prefix("ubtrfs-"),
    }
}

//! `cargo xtask imports`: the arrows between the modules of each crate, as text or for graphviz, and the circles of
//! files.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use super::circles::{self, CIRCLES, Circle};
use super::{Imports, of_crates};
use crate::baseline::Baseline;
use crate::files;
use crate::tidy;

/// Lists the imports and the circles of all crates or of one. Fails if there are more imports against the order, or
/// more modules in circles, than known.
pub(crate) fn run(root: &Path, only: Option<&str>, as_dot: bool) -> ExitCode {
    let files = match files::read_all(root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("imports: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut crates = of_crates(&files);
    crates.retain(|name, _| only.is_none_or(|only| only == name));
    if crates.is_empty() {
        eprintln!("imports: no crate {}", only.unwrap_or_default());
        return ExitCode::from(2);
    }
    if as_dot {
        print!("{}", dot(&crates));
    } else {
        print!("{}", text(&crates));
    }
    let mut circles = circles::find(&files);
    circles.retain(|circle| only.is_none_or(|only| circle.folder.split('/').next() == Some(only)));
    if !as_dot {
        print!("{}", text_of_circles(&circles));
    }
    let baseline = Baseline::read(root, tidy::UPWARD);
    let new_names = baseline.grown(&tidy::upward(&crates));
    for change in &new_names {
        let (key, known, found) = (&change.key, change.known, change.found);
        eprintln!("imports: {key}: {found} names, and {known} are known");
    }
    let baseline = Baseline::read(root, CIRCLES);
    let new_circles = baseline.grown(&circles::counts(&circles));
    for change in &new_circles {
        let (key, known, found) = (&change.key, change.known, change.found);
        eprintln!("imports: {key}: {found} modules in circles, and {known} are known");
    }
    if new_names.is_empty() && new_circles.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn text(crates: &BTreeMap<String, Imports>) -> String {
    let mut text = String::new();
    for (name, imports) in crates {
        let _ = writeln!(text, "{name}");
        for arrow in arrows(name, imports) {
            let Arrow {
                from, to, count, ..
            } = arrow;
            let up = if arrow.is_upward { "  up" } else { "" };
            let circle = if arrow.in_circle { "  circle" } else { "" };
            let _ = writeln!(text, "  {from} -> {to} {count}{up}{circle}");
        }
    }
    text
}

fn text_of_circles(circles: &[Circle]) -> String {
    let mut text = String::new();
    for circle in circles {
        let _ = writeln!(
            text,
            "circle in {}: {}",
            circle.folder,
            circle.modules.join(" ")
        );
        for site in &circle.sites {
            let _ = writeln!(text, "  {}:{} {}", site.file, site.line, site.names);
        }
    }
    text
}

fn dot(crates: &BTreeMap<String, Imports>) -> String {
    let mut text = "digraph imports {\n".to_owned();
    for (name, imports) in crates {
        let _ = writeln!(
            text,
            "  subgraph \"cluster_{name}\" {{\n    label=\"{name}\";"
        );
        for module in &imports.modules {
            let _ = writeln!(text, "    \"{name}/{module}\" [label=\"{module}\"];");
        }
        for arrow in arrows(name, imports) {
            let Arrow {
                from, to, count, ..
            } = arrow;
            let color = if arrow.is_upward { ", color=red" } else { "" };
            let style = if arrow.in_circle { ", style=bold" } else { "" };
            let _ = writeln!(
                text,
                "    \"{name}/{from}\" -> \"{name}/{to}\" [label={count}{color}{style}];"
            );
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

struct Arrow<'a> {
    from: &'a str,
    to: &'a str,
    /// The number of names.
    count: usize,
    is_upward: bool,
    in_circle: bool,
}

fn arrows<'a>(name: &str, imports: &'a Imports) -> Vec<Arrow<'a>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in imports.arrows.keys() {
        next.entry(from).or_default().push(to);
        next.entry(to).or_default();
    }
    let reached = reached(&next);
    let arrows = imports.arrows.iter();
    let arrow = |((from, to), sites): (&'a (String, String), &'a Vec<_>)| Arrow {
        from,
        to,
        count: sites.len(),
        is_upward: tidy::is_upward(name, from, to),
        in_circle: reached[to.as_str()].contains(from.as_str()),
    };
    arrows.map(arrow).collect()
}

/// Finds the modules reachable from each module. `next` has the modules that each one uses.
pub(super) fn reached<'a>(
    next: &BTreeMap<&'a str, Vec<&'a str>>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let reach = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut waiting = next[from].clone();
        while let Some(module) = waiting.pop() {
            if reached.insert(module) {
                waiting.extend(&next[module]);
            }
        }
        reached
    };
    next.keys().map(|&from| (from, reach(from))).collect()
}

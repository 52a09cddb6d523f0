//! Imports between the top-level modules of a crate, outside of tests.
//!
//! An import is a name in a `use`, or a path in the code; both begin with `crate`, `super` or `self`. A method call
//! without an import is not detected. Not here: the allowed imports (`tidy::layers`), circles below the top
//! (`circles`).

pub(crate) mod circles;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) use report::run;

use crate::files::File;
use crate::source::{Source, is_word};

/// The module name of a crate's root file, `lib.rs` or `main.rs`.
pub(crate) const TOP: &str = "lib";

/// The arrows between the top-level modules of a crate.
#[derive(Default)]
pub(crate) struct Imports {
    pub(crate) modules: BTreeSet<String>,
    /// The places where the first module names the second.
    pub(crate) arrows: BTreeMap<(String, String), Vec<Site>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Relative to the workspace.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) names: String,
}

/// Finds the imports of each crate below `crates`, by its folder.
pub(crate) fn of_crates(files: &[File]) -> BTreeMap<String, Imports> {
    let imports = modules_of_crates(files).into_iter();
    imports
        .map(|(name, modules)| (name, of_crate(&modules)))
        .collect()
}

/// Lists the modules of each crate below `crates`, by its folder, without those that are only for tests.
fn modules_of_crates(files: &[File]) -> BTreeMap<String, Vec<Module<'_>>> {
    let mut crates: BTreeMap<String, Vec<Module<'_>>> = BTreeMap::new();
    for file in files {
        if let Some((name, module)) = Module::of_file(file) {
            crates.entry(name).or_default().push(module);
        }
    }
    for modules in crates.values_mut() {
        let mut for_tests = BTreeSet::new();
        for module in modules.iter() {
            for name in module.source.test_modules() {
                let mut path = module.path.clone();
                path.push(name.to_owned());
                for_tests.insert(path);
            }
        }
        let is_for_tests =
            |path: &[String]| (1..=path.len()).any(|end| for_tests.contains(&path[..end]));
        modules.retain(|module| !is_for_tests(&module.path));
    }
    crates
}

struct Module<'a> {
    file: String,
    /// Empty for the root file of the crate.
    path: Vec<String>,
    source: &'a Source,
}

impl Module<'_> {
    /// Returns the crate and the module of a file: `crates/NAME/src/PATH.rs` -> `NAME` and the module. Returns None
    /// for separate programs in `bin`.
    fn of_file(file: &File) -> Option<(String, Module<'_>)> {
        let source = file.source.as_ref()?;
        let mut parts = file.path.iter().map(|part| part.to_string_lossy());
        let (crates, name, src) = (parts.next()?, parts.next()?, parts.next()?);
        let mut path: Vec<String> = parts.map(|part| part.into_owned()).collect();
        if crates != "crates" || src != "src" || path.first()? == "bin" {
            return None;
        }
        let last = Path::new(&path.pop()?).with_extension("");
        let last = last.to_string_lossy().into_owned();
        if last != "mod" && !(path.is_empty() && (last == "lib" || last == "main")) {
            path.push(last);
        }
        let file = file.path.display().to_string();
        Some((name.into_owned(), Module { file, path, source }))
    }

    fn top(&self) -> &str {
        self.path.first().map_or(TOP, String::as_str)
    }
}

fn of_crate(modules: &[Module<'_>]) -> Imports {
    let (top, below): (Vec<&Module<'_>>, Vec<&Module<'_>>) =
        modules.iter().partition(|module| module.path.is_empty());
    let mut imports = Imports {
        modules: below.iter().map(|module| module.top().to_owned()).collect(),
        ..Imports::default()
    };
    let shown = top.first().map(|top| shown_at_top(top.source));
    let shown = shown.unwrap_or_default();
    for module in below {
        add_imports(module, &shown, &mut imports);
    }
    imports
}

/// Finds the names that the root file of a crate imports, each with the first segment of its path.
fn shown_at_top(source: &Source) -> BTreeMap<&str, &str> {
    let mut shown = BTreeMap::new();
    for (at, _) in source.code.match_indices("use ") {
        let is_keyword = at == 0 || !is_word(source.code.as_bytes()[at - 1]);
        if !is_keyword || source.is_test(at) {
            continue;
        }
        for path in paths_at(&source.code, at + "use ".len()) {
            let path = match path.segments.as_slice() {
                ["crate" | "self", rest @ ..] => rest,
                rest => rest,
            };
            if let [first, .., last] = path {
                shown.insert(*last, *first);
            }
        }
    }
    shown
}

fn add_imports(module: &Module<'_>, shown: &BTreeMap<&str, &str>, imports: &mut Imports) {
    let (mut line, mut counted) = (1, 0);
    let code = &module.source.code;
    for at in starts_of_paths(code) {
        if module.source.is_test(at) {
            continue;
        }
        line += code[counted..at].matches('\n').count();
        counted = at;
        for path in paths_at(code, at) {
            let Some(absolute) = absolute(&module.path, &path.segments) else {
                continue;
            };
            let Some(first) = absolute.first().copied() else {
                continue;
            };
            let to = match shown.get(first) {
                _ if imports.modules.contains(first) => first,
                Some(&from) if imports.modules.contains(from) => from,
                // Reexported from another crate.
                Some(_) => continue,
                None => TOP,
            };
            if to != module.top() {
                let arrow = (module.top().to_owned(), to.to_owned());
                imports.arrows.entry(arrow).or_default().push(Site {
                    file: module.file.clone(),
                    line,
                    names: absolute.join("::"),
                });
            }
        }
    }
}

/// Returns the path from the root of the crate, or None if it is outside of the crate.
fn absolute<'a>(module: &'a [String], path: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut absolute: Vec<&str> = module.iter().map(String::as_str).collect();
    for part in path {
        match *part {
            "crate" => absolute.clear(),
            "self" => {}
            "super" => {
                absolute.pop()?;
            }
            part => absolute.push(part),
        }
    }
    Some(absolute)
}

/// Returns the offsets where `crate::`, `super::` or `self::` begins a path.
fn starts_of_paths(code: &str) -> impl Iterator<Item = usize> {
    let bytes = code.as_bytes();
    code.match_indices("::").filter_map(move |(end, _)| {
        let word = bytes[..end].iter().rev().take_while(|&&b| is_word(b));
        let start = end - word.count();
        let begins = matches!(&code[start..end], "crate" | "super" | "self");
        (begins && !bytes[..start].ends_with(b"::")).then_some(start)
    })
}

/// A path in the code, or one of a `use`.
struct CodePath<'a> {
    segments: Vec<&'a str>,
    /// The name after `as`.
    alias: Option<&'a str>,
}

/// Returns the path or the tree of paths at `at`.
fn paths_at(code: &str, at: usize) -> Vec<CodePath<'_>> {
    let mut paths = Vec::new();
    let mut tree = PathTree { code, at };
    tree.read(&mut Vec::new(), &mut paths);
    paths
}

struct PathTree<'a> {
    code: &'a str,
    at: usize,
}

impl<'a> PathTree<'a> {
    fn read(&mut self, before: &mut Vec<&'a str>, paths: &mut Vec<CodePath<'a>>) {
        let depth = before.len();
        loop {
            self.skip_space();
            match self.byte() {
                b'{' => {
                    self.at += 1;
                    self.group(before, paths);
                    break;
                }
                byte if is_word(byte) || byte == b'*' => {
                    before.push(self.word());
                    if !self.skip("::") || !self.is_continued() {
                        paths.push(CodePath {
                            segments: before.clone(),
                            alias: self.alias(),
                        });
                        break;
                    }
                }
                _ => break,
            }
        }
        before.truncate(depth);
    }

    fn group(&mut self, before: &mut Vec<&'a str>, paths: &mut Vec<CodePath<'a>>) {
        loop {
            self.skip_space();
            match self.byte() {
                b',' => self.at += 1,
                b'}' | 0 => {
                    self.at += 1;
                    return;
                }
                _ => {
                    self.read(before, paths);
                    self.skip_to_end_of_branch();
                }
            }
        }
    }

    /// Returns NAME if ` as NAME` follows.
    fn alias(&mut self) -> Option<&'a str> {
        self.skip_space();
        self.skip("as ").then(|| self.word())
    }

    /// Skips any other text that is not a path.
    fn skip_to_end_of_branch(&mut self) {
        while !matches!(self.byte(), b',' | b'}' | 0) {
            self.at += 1;
        }
    }

    fn byte(&self) -> u8 {
        self.code.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.code[self.at..];
        let word = rest.bytes().take_while(|&b| is_word(b)).count().max(1);
        self.at += word;
        &rest[..word]
    }

    fn skip(&mut self, what: &str) -> bool {
        let found = self.code[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn skip_space(&mut self) {
        while self.byte().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    /// Returns whether a path continues after `::`; a generic argument ends it.
    fn is_continued(&mut self) -> bool {
        self.skip_space();
        let byte = self.byte();
        is_word(byte) || byte == b'{' || byte == b'*'
    }
}

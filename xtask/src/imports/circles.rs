//! Circles among the modules of a folder: files that use each other, directly or through others.
//!
//! A module is its file and all files below it. A name belongs to the file that declares it, also if it is
//! imported through another that reexports it. A file and the files below it may use each other.
//!
//! - TIDY-19: the number of modules in circles only falls. A baseline has the known ones.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::{CodePath, Module, Site, absolute, modules_of_crates, paths_at};
use crate::baseline::Counts;
use crate::files::File;
use crate::source::is_word;

/// The baseline of modules in circles: `CRATE/FOLDER COUNT`.
pub(crate) const CIRCLES: &str = "xtask/src/imports/circles.txt";

/// The most reexports between a name and its declaration.
const MOST_REEXPORTS: usize = 8;

/// Modules of a folder that all reach each other by imports.
#[derive(Debug)]
pub(crate) struct Circle {
    /// The crate and the folder: `storage/transaction`.
    pub(crate) folder: String,
    pub(crate) modules: Vec<String>,
    /// The imports between them.
    pub(crate) sites: Vec<Site>,
}

/// Returns the number of modules in circles of each folder (TIDY-19).
pub(crate) fn counts(circles: &[Circle]) -> Counts {
    let mut counts = Counts::new();
    for circle in circles {
        *counts.entry(circle.folder.clone()).or_default() += circle.modules.len();
    }
    counts
}

/// Finds the circles in all folders of all crates.
pub(crate) fn find(files: &[File]) -> Vec<Circle> {
    let crates = modules_of_crates(files);
    let circles = crates.iter();
    circles
        .flat_map(|(name, modules)| CrateFiles::new(modules).circles(name))
        .collect()
}

/// The imports between the modules of one folder.
type Arrows = BTreeMap<(String, String), Vec<Site>>;

/// The files of a crate, by the paths of their modules.
struct CrateFiles<'a> {
    modules: BTreeMap<&'a [String], &'a Module<'a>>,
    /// The imported names of each file, with their absolute paths.
    imported: BTreeMap<&'a [String], BTreeMap<&'a str, Vec<&'a str>>>,
}

impl<'a> CrateFiles<'a> {
    fn new(modules: &'a [Module<'a>]) -> CrateFiles<'a> {
        let mut files = CrateFiles {
            modules: modules
                .iter()
                .map(|module| (&module.path[..], module))
                .collect(),
            imported: BTreeMap::new(),
        };
        for module in modules {
            let mut names = BTreeMap::new();
            for (use_at, _) in uses(module) {
                for path in paths_at(&module.source.code, use_at) {
                    let name = path.alias.or(path.segments.last().copied());
                    let from = files.absolute(module, &path);
                    if let (Some(name), Some(from)) = (name, from) {
                        names.insert(name, from);
                    }
                }
            }
            files.imported.insert(&module.path, names);
        }
        files
    }

    /// Returns the path from the root of the crate, or None if it is outside of the crate.
    fn absolute(&self, module: &'a Module<'a>, path: &CodePath<'a>) -> Option<Vec<&'a str>> {
        let first = *path.segments.first()?;
        let is_inside = matches!(first, "crate" | "super" | "self") || self.is_below(module, first);
        is_inside
            .then(|| absolute(&module.path, &path.segments))
            .flatten()
    }

    /// Returns whether `name` is a module directly below.
    fn is_below(&self, module: &Module<'_>, name: &str) -> bool {
        let mut path = module.path.clone();
        path.push(name.to_owned());
        self.modules.contains_key(&path[..])
    }

    /// Returns the module whose file declares the name at the end of `path`.
    fn declaring(&self, mut path: Vec<&'a str>) -> &'a [String] {
        for _ in 0..MOST_REEXPORTS {
            let (module, rest) = self.split(&path);
            let imported = rest.first().and_then(|name| {
                let from = self.imported.get(module)?.get(name)?;
                Some([&from[..], &rest[1..]].concat())
            });
            match imported {
                Some(from) if from != path => path = from,
                _ => return module,
            }
        }
        self.split(&path).0
    }

    /// Splits a path into its longest module, and the rest.
    fn split<'p>(&self, path: &'p [&'a str]) -> (&'a [String], &'p [&'a str]) {
        let mut module: &'a [String] = &[];
        for end in 1..=path.len() {
            let owned: Vec<String> = path[..end].iter().map(|&part| part.to_owned()).collect();
            match self.modules.get_key_value(&owned[..]) {
                Some((found, _)) => module = found,
                None => break,
            }
        }
        (module, &path[module.len()..])
    }

    /// Finds the imports between modules of the same folder, by folder.
    fn arrows(&self) -> BTreeMap<&'a [String], Arrows> {
        let mut folders: BTreeMap<&[String], Arrows> = BTreeMap::new();
        for (&from, &module) in &self.modules {
            for (line, path) in self.used_paths(module) {
                let to = self.declaring(path.clone());
                let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if shared == from.len() || shared == to.len() {
                    continue;
                }
                let arrow = (from[shared].clone(), to[shared].clone());
                let arrows = folders.entry(&from[..shared]).or_default();
                arrows.entry(arrow).or_default().push(Site {
                    file: module.file.clone(),
                    line,
                    names: path.join("::"),
                });
            }
        }
        folders
    }

    /// Returns the paths that a file uses, with their lines. Reexports are no uses.
    fn used_paths(&self, module: &'a Module<'a>) -> Vec<(usize, Vec<&'a str>)> {
        let code = &module.source.code;
        let uses: Vec<(usize, bool)> = uses(module).collect();
        let mut paths = Vec::new();
        let mut add = |at: usize| {
            let line = 1 + code[..at].matches('\n').count();
            for path in paths_at(code, at) {
                paths.extend(self.absolute(module, &path).map(|path| (line, path)));
            }
        };
        for &(at, is_reexport) in &uses {
            if !is_reexport {
                add(at);
            }
        }
        for at in starts_in_code(code) {
            let in_use = uses.iter().any(|&(start, _)| {
                let end = code[start..]
                    .find(';')
                    .map_or(code.len(), |end| start + end);
                (start..end).contains(&at)
            });
            // The path of a visibility: `pub(in crate::a)`.
            let in_visibility = code[..at].ends_with("pub(in ");
            if !in_use && !in_visibility && !module.source.is_test(at) {
                add(at);
            }
        }
        paths
    }

    fn circles(&self, name: &str) -> Vec<Circle> {
        let mut circles = Vec::new();
        for (folder, mut arrows) in self.arrows() {
            let folder = [&[name.to_owned()][..], folder].concat().join("/");
            for modules in circles_of(arrows.keys()) {
                let mut sites = Vec::new();
                for ((from, to), of_arrow) in &mut arrows {
                    if modules.contains(from) && modules.contains(to) {
                        sites.append(of_arrow);
                    }
                }
                circles.push(Circle {
                    folder: folder.clone(),
                    modules: modules.into_iter().collect(),
                    sites,
                });
            }
        }
        circles
    }
}

/// Returns the sets of two or more modules that reach each other along arrows.
fn circles_of<'k>(arrows: impl Iterator<Item = &'k (String, String)>) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
        next.entry(to).or_default();
    }
    let reached = super::report::reached(&next);
    let mut circles: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (&module, from_here) in &reached {
        let returns = from_here
            .iter()
            .filter(|other| reached[**other].contains(module));
        let circle: BTreeSet<String> = returns.map(|&other| other.to_owned()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Returns the offsets behind each `use` outside of tests, and whether it is a reexport.
fn uses<'m>(module: &'m Module<'_>) -> impl Iterator<Item = (usize, bool)> + use<'m> {
    let code = &module.source.code;
    code.match_indices("use ").filter_map(|(at, keyword)| {
        let before = &code[..at];
        let is_keyword = !before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let before = before.trim_end();
        let is_reexport = before.ends_with("pub") || before.ends_with(')');
        (is_keyword && !module.source.is_test(at)).then_some((at + keyword.len(), is_reexport))
    })
}

/// Returns the offsets of all paths with more than one segment.
fn starts_in_code(code: &str) -> impl Iterator<Item = usize> {
    let bytes = code.as_bytes();
    code.match_indices("::").filter_map(move |(end, _)| {
        let word = bytes[..end].iter().rev().take_while(|&&b| is_word(b));
        let start = end - word.count();
        (start < end && !bytes[..start].ends_with(b"::")).then_some(start)
    })
}

//! The handwritten files of the workspace, read once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::source::Source;

const SKIPPED_DIRS: &[&str] = &["target", ".git", "corpus", "artifacts", "images"];
const TEXT: &[&str] = &["rs", "toml", "md", "sh", "yml", "yaml"];
const TEXT_DIRS: &[&str] = &["scripts", ".ci"];

pub(crate) struct File {
    /// Relative to the workspace.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// None for other files than Rust.
    pub(crate) source: Option<Source>,
}

impl File {
    pub(crate) fn new(path: &Path, text: String) -> File {
        let is_rust = path.extension().is_some_and(|ext| ext == "rs");
        File {
            path: path.to_path_buf(),
            source: is_rust.then(|| Source::new(&text)),
            text,
        }
    }
}

/// Reads all UTF-8 text files below `root`, in the order of their paths.
pub(crate) fn read_all(root: &Path) -> io::Result<Vec<File>> {
    let mut paths = Vec::new();
    walk(root, &mut paths)?;
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        Some(File::new(path.strip_prefix(root).unwrap_or(path), text))
    };
    Ok(paths.iter().filter_map(read).collect())
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if !SKIPPED_DIRS.iter().any(|skipped| name == *skipped) {
                match walk(&path, files) {
                    // A folder of a concurrent test was removed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    outcome => outcome?,
                }
            }
        } else if kind.is_file() && is_text(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    let by_extension = path
        .extension()
        .is_some_and(|ext| TEXT.iter().any(|text| ext == *text));
    let by_dir = path
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|dir| TEXT_DIRS.iter().any(|text| dir == *text));
    by_extension || by_dir || path.file_name().is_some_and(|name| name == "Makefile")
}

//! `ubtrfs tree`: draws a directory tree, in the layout of tree(1).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use ubtrfs::{DirEntry, Walk, WalkOptions};

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::permissions;
use crate::presentation::quoting::{Escaped, ShellQuoted};
use crate::volume_access::location::{Location, VolumeOptions};

/// Draw a directory and what is below it
#[derive(Debug, clap::Args)]
pub(crate) struct Tree {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// Show names that begin with a dot as well
    #[arg(short, long)]
    all: bool,
    /// Show directories only
    #[arg(short)]
    directories: bool,
    /// Go down this many levels
    #[arg(short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Tree {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let options = WalkOptions::new()
            .sort_by_name(true)
            .no_follow(true)
            .skip_hidden(!self.all)
            .only_directories(self.directories);
        let walk = opened.files.walk(self.location.path_within(), &options);
        if console.is_json() {
            self.print_json(console, walk)
        } else {
            self.draw(console, walk)
        }
    }

    /// Returns the started walk. Reports an error, such as a path that is not a directory, and returns None.
    fn begun(&self, walk: ubtrfs::Result<Walk>, console: &mut Console) -> Option<Walk> {
        let begun = walk.inspect_err(|error| self.complain(error, false, console));
        begun.ok()
    }

    /// Returns the next readable entry. Reports unreadable ones before it.
    fn next_entry(&self, walk: &mut Walk, console: &mut Console) -> Option<DirEntry> {
        loop {
            match walk.next()? {
                Ok(entry) => return Some(entry),
                Err(error) => self.complain(&error, walk.is_refused(), console),
            }
        }
    }

    /// Returns the path relative to the drawn directory.
    fn shown<'p>(&self, path: &'p Path) -> &'p [u8] {
        let path = path.as_os_str().as_bytes();
        let path = path.strip_prefix(&*self.location.path).unwrap_or(path);
        path.strip_prefix(b"/").unwrap_or(path)
    }

    /// Reports an error. `is_refused` means that the directory was not entered.
    fn complain(&self, error: &ubtrfs::Error, is_refused: bool, console: &mut Console) {
        let path = Escaped(self.shown(error.path().unwrap_or(Path::new(""))));
        let reason = error.reason();
        if is_refused {
            console.error(format_args!("'{path}': {reason}"))
        } else {
            console.error(format_args!("cannot list '{path}': {reason}"))
        }
    }

    fn goes_below(&self, depth: usize) -> bool {
        self.levels.is_none_or(|levels| depth < levels as usize)
    }

    fn draw(&self, console: &mut Console, walk: ubtrfs::Result<Walk>) -> anyhow::Result<()> {
        let for_terminal = console.is_terminal();
        let image = self.location.image.as_os_str().as_bytes();
        console
            .out
            .write_all(&[image, b":", &self.location.path, b"\n"].concat())?;
        let (mut directories, mut files) = (0u64, 0u64);
        // For each level above, whether it has more entries.
        let mut open: Vec<bool> = Vec::new();
        let mut walk = self.begun(walk, console);
        while let Some(walk) = &mut walk
            && let Some(entry) = self.next_entry(walk, console)
        {
            open.truncate(walk.depth() - 1);
            let more = walk.has_sibling();
            for &open in &open {
                let branch = if open {
                    "\u{2502}\u{a0}\u{a0} "
                } else {
                    "    "
                };
                console.out.write_all(branch.as_bytes())?;
            }
            let branch = if more {
                "\u{251c}\u{2500}\u{2500} "
            } else {
                "\u{2514}\u{2500}\u{2500} "
            };
            console.out.write_all(branch.as_bytes())?;
            let name = entry.file_name();
            if for_terminal {
                write!(console.out, "{}", ShellQuoted(name.as_bytes()))?
            } else {
                console.out.write_all(name.as_bytes())?
            }
            if entry.file_type().is_symlink() {
                match entry.read_link() {
                    Ok(target) => {
                        let target = Escaped::of(&target);
                        write!(console.out, " -> {target}")?;
                    }
                    Err(error) => console.error(error.reason()),
                }
            }
            writeln!(console.out)?;
            if entry.file_type().is_dir() {
                directories += 1;
                open.push(more);
                if !self.goes_below(walk.depth()) {
                    walk.skip_contents();
                }
            } else {
                files += 1;
            }
        }
        let directories = counted(directories, "directory", "directories");
        let files = counted(files, "file", "files");
        if self.directories {
            writeln!(console.out, "\n{directories}")?
        } else {
            writeln!(console.out, "\n{directories}, {files}")?
        }
        Ok(())
    }

    /// Prints a flat list in the order of the drawing, with the depth of each entry.
    fn print_json(&self, console: &mut Console, walk: ubtrfs::Result<Walk>) -> anyhow::Result<()> {
        let mut list = json::JsonList::start(&mut console.out, "tree")?;
        let mut walk = self.begun(walk, console);
        while let Some(walk) = &mut walk
            && let Some(entry) = self.next_entry(walk, console)
        {
            let (path, depth) = (entry.path(), walk.depth());
            let path = self.shown(&path);
            let shown = TreeJson {
                path: json::text(path),
                path_hex: json::hex_if_lossy(path),
                kind: permissions::kind_name(entry.file_type()),
                depth,
            };
            list.push(&mut console.out, &shown)?;
            if !self.goes_below(depth) {
                walk.skip_contents();
            }
        }
        Ok(list.end(&mut console.out)?)
    }
}

#[derive(Debug, Serialize)]
struct TreeJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    depth: usize,
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

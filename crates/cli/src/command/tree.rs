//! `ubtrfs tree`: directories as a drawing, in the layout of tree(1).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use ubtrfs::transfer::walk::{Filter, Order, Step, Walk};
use ubtrfs_engine::FileKind;

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
        let filter = Filter {
            skip_hidden: !self.all,
            only_directories: self.directories,
        };
        let walk = Walk::new(opened.engine(), opened.target, b"", Order::Name, filter);
        match console.is_json() {
            true => self.print_json(console, walk),
            false => self.draw(console, walk),
        }
    }

    fn goes_below(&self, depth: usize) -> bool {
        self.levels.is_none_or(|levels| depth < levels as usize)
    }

    fn draw(&self, console: &mut Console, mut walk: Walk<'_>) -> anyhow::Result<()> {
        let for_terminal = console.is_terminal();
        let image = self.location.image.as_os_str().as_bytes();
        console
            .out
            .write_all(&[image, b":", &self.location.path, b"\n"].concat())?;
        let (mut directories, mut files) = (0u64, 0u64);
        // For each level above, whether more follows on it.
        let mut open: Vec<bool> = Vec::new();
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
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
                    let branch = match more {
                        true => "\u{251c}\u{2500}\u{2500} ",
                        false => "\u{2514}\u{2500}\u{2500} ",
                    };
                    console.out.write_all(branch.as_bytes())?;
                    match for_terminal {
                        true => write!(console.out, "{}", ShellQuoted(&entry.name))?,
                        false => console.out.write_all(&entry.name)?,
                    }
                    if entry.kind == FileKind::Symlink {
                        let volume = walk.volume();
                        match volume.readlink(entry.id) {
                            Ok(target) => write!(console.out, " -> {}", Escaped(&target))?,
                            Err(error) => console.error(error),
                        }
                    }
                    writeln!(console.out)?;
                    if entry.kind == FileKind::Directory {
                        directories += 1;
                        open.push(more);
                        if self.goes_below(walk.depth())
                            && let Err(error) = walk.enter(&entry)
                        {
                            console.error(format_args!("'{}': {error}", Escaped(walk.path())));
                        }
                    } else {
                        files += 1;
                    }
                }
                Step::Leave => {}
                Step::Failed(error) => {
                    console.error(format_args!(
                        "cannot list '{}': {error}",
                        Escaped(walk.path())
                    ));
                }
            }
        }
        let directories = counted(directories, "directory", "directories");
        let files = counted(files, "file", "files");
        match self.directories {
            true => writeln!(console.out, "\n{directories}")?,
            false => writeln!(console.out, "\n{directories}, {files}")?,
        }
        Ok(())
    }

    /// A flat list in the order of the drawing, with each entry's depth.
    fn print_json(&self, console: &mut Console, mut walk: Walk<'_>) -> anyhow::Result<()> {
        let mut list = json::JsonList::start(&mut console.out, "tree")?;
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => {
                    let depth = walk.depth();
                    let shown = TreeJson {
                        path: json::text(walk.path()),
                        path_hex: json::hex_if_lossy(walk.path()),
                        kind: permissions::kind_name(entry.kind),
                        depth,
                    };
                    list.push(&mut console.out, &shown)?;
                    if entry.kind == FileKind::Directory
                        && self.goes_below(depth)
                        && let Err(error) = walk.enter(&entry)
                    {
                        console.error(format_args!("'{}': {error}", Escaped(walk.path())));
                    }
                }
                Step::Leave => {}
                Step::Failed(error) => {
                    console.error(format_args!(
                        "cannot list '{}': {error}",
                        Escaped(walk.path())
                    ));
                }
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

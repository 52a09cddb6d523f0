//! `ubtrfs filesystem du`: the space that files use, exclusive and shared.

mod mounted;

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use anyhow::Context;
use serde::Serialize;
use ubtrfs::{DirEntry, FileSpace, UsageMeter, WalkOptions};

use crate::presentation::console::Console;
use crate::presentation::json::{self, JsonList};
use crate::presentation::quoting::Escaped;
use crate::presentation::units::{LongUnits, Units};
use crate::volume_access::ioctls::{self, ByIoctls};
use crate::volume_access::location::{Location, Opened, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Summarize the space that files use, shared and alone
#[derive(Debug, clap::Args)]
pub(crate) struct Du {
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    locations: Vec<Location>,
    /// Display only a total for each argument
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Debug, Serialize)]
struct Row {
    path: String,
    total: u64,
    exclusive: u64,
    /// Only for an argument itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_shared: Option<u64>,
}

enum Output {
    Text(Units),
    Json(JsonList),
}

impl Output {
    fn end(self, console: &mut Console) -> anyhow::Result<()> {
        match self {
            Output::Json(list) => Ok(list.end(&mut console.out)?),
            Output::Text(_) => Ok(()),
        }
    }
}

impl Du {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let mut output = self.start(console)?;
        for location in &self.locations {
            match self.volume.open(location) {
                Ok(opened) => self.measure(console, &mut output, location, &opened)?,
                Err(error) => console.failed(&error),
            }
        }
        output.end(console)
    }

    fn start(&self, console: &mut Console) -> anyhow::Result<Output> {
        if console.is_json() {
            let list = JsonList::start(&mut console.out, "filesystem-du")?;
            return Ok(Output::Json(list));
        }
        let head = ("Total", "Exclusive", "Set shared", "Filename");
        writeln!(
            console.out,
            "{:>10}  {:>10}  {:>10}  {}",
            head.0, head.1, head.2, head.3
        )?;
        Ok(Output::Text(self.units.units()))
    }

    fn measure(
        &self,
        console: &mut Console,
        output: &mut Output,
        location: &Location,
        opened: &Opened,
    ) -> anyhow::Result<()> {
        let files = &opened.files;
        let (within, path) = (location.path_within(), location.to_outside());
        let kind = files.symlink_metadata(within).reason()?.file_type();
        if kind.is_file() {
            let usage = files.disk_usage(within).reason();
            let usage = usage.with_context(|| format!("cannot check space of '{location}'"))?;
            let usage = Usage {
                total: usage.total_bytes,
                exclusive: usage.exclusive_bytes,
            };
            return print(console, output, &path, usage, Some(usage.shared()));
        }
        if !kind.is_dir() {
            return Ok(());
        }
        let mut shown = Shown {
            meter: files.usage_meter(),
            open: vec![Directory::new(path)],
            output,
            is_summary: self.summarize,
        };
        let options = WalkOptions::new().no_follow(true);
        let mut walk = files.walk(within, &options).reason()?;
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) => {
                    shown.leave_to(walk.depth(), console)?;
                    shown.entry(&entry, console)?;
                }
                Err(error) => {
                    // A directory that cannot be entered has no sum.
                    let refused = if walk.is_refused() {
                        shown.open.pop()
                    } else {
                        None
                    };
                    let is_argument = refused.is_some() && shown.open.is_empty();
                    shown.leave_to(walk.depth(), console)?;
                    let dir = refused.as_ref().or(shown.open.last());
                    let path = dir.map_or(&[][..], |dir| &dir.path);
                    if is_denied(error.kind()) && !is_argument {
                        pass_over(console, path, error.reason());
                    } else {
                        complain(console, path, error.reason());
                    }
                }
            }
        }
        shown.leave_to(0, console)
    }
}

/// The rows of one argument.
struct Shown<'o> {
    meter: UsageMeter,
    /// The open directories of the walk, from the argument down.
    open: Vec<Directory>,
    output: &'o mut Output,
    is_summary: bool,
}

struct Directory {
    path: Vec<u8>,
    usage: Usage,
}

impl Directory {
    fn new(path: Vec<u8>) -> Directory {
        Directory {
            path,
            usage: Usage::default(),
        }
    }
}

impl Shown<'_> {
    fn entry(&mut self, entry: &DirEntry, console: &mut Console) -> anyhow::Result<()> {
        let mut path = self.open.last().map_or(Vec::new(), |dir| dir.path.clone());
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().as_bytes());
        if entry.file_type().is_dir() {
            self.open.push(Directory::new(path));
            return Ok(());
        }
        match self.meter.measure(entry) {
            Ok(Some(space)) => {
                let usage = Usage::from(space);
                self.count(usage);
                if self.is_summary {
                    Ok(())
                } else {
                    print(console, self.output, &path, usage, None)
                }
            }
            Ok(None) => Ok(()),
            Err(error) => {
                if is_denied(error.kind()) {
                    pass_over(console, &path, error.reason());
                } else {
                    complain(console, &path, error.reason());
                }
                Ok(())
            }
        }
    }

    /// Leaves directories until `depth` are open.
    fn leave_to(&mut self, depth: usize, console: &mut Console) -> anyhow::Result<()> {
        while self.open.len() > depth {
            let Some(left) = self.open.pop() else { break };
            let set_shared = self.open.is_empty().then(|| self.meter.shared_bytes());
            self.count(left.usage);
            if set_shared.is_some() || !self.is_summary {
                print(console, self.output, &left.path, left.usage, set_shared)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, usage: Usage) {
        if let Some(directory) = self.open.last_mut() {
            directory.usage.add(usage);
        }
    }
}

/// Bytes of extents, and their exclusive part.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    total: u64,
    exclusive: u64,
}

impl From<FileSpace> for Usage {
    fn from(space: FileSpace) -> Usage {
        Usage {
            total: space.total_bytes,
            exclusive: space.exclusive_bytes,
        }
    }
}

impl Usage {
    fn shared(self) -> u64 {
        self.total.saturating_sub(self.exclusive)
    }

    fn add(&mut self, usage: Usage) {
        self.total = self.total.saturating_add(usage.total);
        self.exclusive = self.exclusive.saturating_add(usage.exclusive);
    }
}

impl ByIoctls for Du {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let mut output: Option<Output> = None;
        for location in &self.locations {
            let mut meter = mounted::Meter::default();
            let measured = meter.measure(
                location.written_path(),
                &mut |console, path, usage, set| {
                    let is_shown = set.is_some() || !self.summarize;
                    let output = match &mut output {
                        Some(output) => output,
                        // A mount that reports no extents fails before anything is printed.
                        None => output.insert(self.start(console)?),
                    };
                    if is_shown {
                        print(console, output, path, usage, set)
                    } else {
                        Ok(())
                    }
                },
                console,
            );
            if let Err(error) = measured {
                if ioctls::is_unknown(&error) {
                    return Err(error);
                }
                console.failed(&error);
            }
        }
        match output {
            Some(output) => output.end(console),
            None => self.start(console)?.end(console),
        }
    }
}

fn complain(console: &mut Console, path: &[u8], error: impl std::fmt::Display) {
    console.error(format_args!(
        "cannot check space of '{}': {error}",
        Escaped(path)
    ));
}

/// Returns whether the caller lacks the permission to read a file or directory.
fn is_denied(error: io::ErrorKind) -> bool {
    error == io::ErrorKind::PermissionDenied
}

/// Warns about a file or directory below the argument that the caller may not read. As in btrfs-progs, this
/// is not a failure.
fn pass_over(console: &mut Console, path: &[u8], error: impl std::fmt::Display) {
    console.warning(format_args!("cannot access '{}': {error}", Escaped(path)));
}

fn print(
    console: &mut Console,
    output: &mut Output,
    path: &[u8],
    usage: Usage,
    set_shared: Option<u64>,
) -> anyhow::Result<()> {
    let Usage { total, exclusive } = usage;
    match output {
        Output::Json(list) => {
            let row = Row {
                path: json::text(path),
                total,
                exclusive,
                set_shared,
            };
            list.push(&mut console.out, &row)?;
        }
        Output::Text(units) => {
            let shared = set_shared.map_or_else(|| "-".to_owned(), |bytes| units.size(bytes));
            let (total, exclusive) = (units.size(total), units.size(exclusive));
            write!(console.out, "{total:>10}  {exclusive:>10}  {shared:>10}  ")?;
            if console.is_terminal() {
                writeln!(console.out, "{}", Escaped(path))?
            } else {
                console.out.write_all(&[path, b"\n"].concat())?
            }
        }
    }
    Ok(())
}

//! `ubtrfs filesystem du`: what files use, alone and together.

mod mounted;

use std::collections::HashSet;
use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use ubtrfs::transfer::walk::{Filter, Order, Step, Walk};
use ubtrfs_engine::inspect::{FileUsage, SharedRanges, SharingCache};
use ubtrfs_engine::{FileId, FileKind, Volume};

use crate::presentation::console::Console;
use crate::presentation::json::{self, JsonList};
use crate::presentation::quoting::Escaped;
use crate::presentation::units::{LongUnits, Units};
use crate::volume_access::ioctls::{self, ByIoctls};
use crate::volume_access::location::{Location, Opened, VolumeOptions};

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
        let volume: &Volume = opened.engine();
        let mut meter = Meter {
            volume,
            cache: SharingCache::default(),
            ranges: SharedRanges::default(),
            seen: HashSet::new(),
        };
        let path = location.to_outside();
        let kind = volume.attr(opened.target)?.kind;
        if kind != FileKind::Directory {
            if kind != FileKind::Regular {
                return Ok(());
            }
            let usage = meter
                .file(opened.target)
                .with_context(|| format!("cannot check space of '{location}'"))?;
            return print(console, output, &path, usage, Some(usage.shared));
        }
        let mut sums = vec![FileUsage::default()];
        let filter = Filter::default();
        let mut walk = Walk::new(volume, opened.target, &path, Order::Index, filter);
        while let Some(step) = walk.next_step() {
            match step {
                Step::Entry(entry) => match entry.kind {
                    FileKind::Directory => match walk.enter(&entry) {
                        Ok(()) => sums.push(FileUsage::default()),
                        Err(error) => complain(console, walk.path(), error),
                    },
                    FileKind::Regular if meter.is_new(entry.id) => match meter.file(entry.id) {
                        Ok(usage) => {
                            add(&mut sums, usage);
                            if !self.summarize {
                                print(console, output, walk.path(), usage, None)?;
                            }
                        }
                        Err(error) => complain(console, walk.path(), error),
                    },
                    _ => {}
                },
                Step::Leave => {
                    let sum = sums.pop().unwrap_or_default();
                    if sums.is_empty() {
                        print(console, output, &path, sum, Some(meter.ranges.bytes()))?;
                    } else {
                        add(&mut sums, sum);
                        if !self.summarize {
                            print(console, output, walk.path(), sum, None)?;
                        }
                    }
                }
                Step::Failed(error) => complain(console, walk.path(), error),
            }
        }
        Ok(())
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
                        // A mount that tells of no extents is refused without a word.
                        None => output.insert(self.start(console)?),
                    };
                    match is_shown {
                        true => print(console, output, path, usage, set),
                        false => Ok(()),
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

struct Meter<'v> {
    volume: &'v Volume,
    cache: SharingCache,
    ranges: SharedRanges,
    /// Files with several names that were counted.
    seen: HashSet<FileId>,
}

impl Meter<'_> {
    fn is_new(&mut self, id: FileId) -> bool {
        match self.volume.attr(id) {
            Ok(attr) if attr.nlink > 1 => self.seen.insert(id),
            // An inode that cannot be read is reported when it is measured.
            _ => true,
        }
    }

    fn file(&mut self, id: FileId) -> ubtrfs_engine::Result<FileUsage> {
        self.volume
            .file_usage(id, &mut self.cache, &mut self.ranges)
    }
}

fn add(sums: &mut [FileUsage], usage: FileUsage) {
    if let Some(sum) = sums.last_mut() {
        sum.total = sum.total.saturating_add(usage.total);
        sum.shared = sum.shared.saturating_add(usage.shared);
    }
}

fn complain(console: &mut Console, path: &[u8], error: impl std::fmt::Display) {
    console.error(format_args!(
        "cannot check space of '{}': {error}",
        Escaped(path)
    ));
}

fn print(
    console: &mut Console,
    output: &mut Output,
    path: &[u8],
    usage: FileUsage,
    set_shared: Option<u64>,
) -> anyhow::Result<()> {
    let exclusive = usage.total.saturating_sub(usage.shared);
    match output {
        Output::Json(list) => {
            let row = Row {
                path: json::text(path),
                total: usage.total,
                exclusive,
                set_shared,
            };
            list.push(&mut console.out, &row)?;
        }
        Output::Text(units) => {
            let shared = set_shared.map_or_else(|| "-".to_owned(), |bytes| units.size(bytes));
            let (total, exclusive) = (units.size(usage.total), units.size(exclusive));
            write!(console.out, "{total:>10}  {exclusive:>10}  {shared:>10}  ")?;
            match console.is_terminal() {
                true => writeln!(console.out, "{}", Escaped(path))?,
                false => console.out.write_all(&[path, b"\n"].concat())?,
            }
        }
    }
    Ok(())
}

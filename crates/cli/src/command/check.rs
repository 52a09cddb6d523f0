//! `ubtrfs check`: checks the consistency of a volume. Reads only.
//!
//! As in btrfs-progs, findings go to standard output and the phases to standard error. Exit code 1 means an
//! error. Warnings and notes do not count as errors.

use std::ffi::OsString;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{ValueEnum, ValueHint};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use ubtrfs::{
    CheckIssue, CheckReport, Checker, DeviceAccess, DeviceName, Event, Holder, MakerMark,
    OpenCheck, PhaseProgress, Severity,
};
use ubtrfs_device::clock;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::volume_access::held;
use crate::volume_access::location::DeviceOptions;
use crate::volume_access::reason::Reasoned;

/// With less memory, the caches hold too few blocks to be useful.
const LEAST_MEMORY_MIB: u64 = 16;
const PROGRESS: &str = "{spinner} [{elapsed_precise}] {wide_msg}";

/// Check the consistency of a volume that is not mounted
///
/// Nothing is ever written. Exit code 0: no error was found, whatever warnings and notes there are; 1: errors were
/// found, or the check failed. A note is of a state that sound operation leaves, as after a power cut. The page
/// check.md lists the numbers, of the sources in docs, of a package in /usr/share/doc/ubtrfs.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The devices or images of the volume
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    named: Vec<DeviceName>,
    /// Take the trees from this copy of the superblock: 0, 1 or 2
    #[arg(short, long = "super", value_name = "COPY")]
    super_: Option<usize>,
    /// Take the trees from the newest backup root that can be read, of an earlier transaction if one can
    #[arg(short, long)]
    backup: bool,
    /// Take the root tree from this address
    #[arg(short = 'r', long, value_name = "BYTENR")]
    tree_root: Option<u64>,
    /// Take the chunk tree from this address
    #[arg(long, value_name = "BYTENR")]
    chunk_root: Option<u64>,
    /// Read the data of every mirror and compare it with its checksums
    #[arg(long)]
    check_data_csum: bool,
    /// Show progress on standard error, a line every second and at the end of each phase; on a terminal there is
    /// always some
    #[arg(short, long)]
    progress: bool,
    /// Print only problems
    #[arg(short, long)]
    quiet: bool,
    /// Check even if the volume is mounted; findings may be wrong then
    #[arg(long)]
    force: bool,
    /// List at most this many issues; the others are counted
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    max_issues: usize,
    /// Memory for buffers and caches, in MiB; by default 256, or a third of what this process may use if that is less
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Write nothing (always done)
    #[arg(long)]
    readonly: bool,
    /// Not done: ubtrfs does not repair volumes
    #[arg(long, hide = true)]
    repair: bool,
    /// Not done: ubtrfs does not repair volumes
    #[arg(long, hide = true)]
    init_csum_tree: bool,
    /// Not done: ubtrfs does not repair volumes
    #[arg(long, hide = true)]
    init_extent_tree: bool,
    /// Not done: nothing is written
    #[arg(long, value_name = "VERSION", hide = true)]
    clear_space_cache: Option<OsString>,
    /// Not done: the sums of quota groups are not checked
    #[arg(short = 'Q', long, hide = true)]
    qgroup_report: bool,
    /// Not done: 'inspect-internal logical-resolve' shows the files that share an extent
    #[arg(short = 'E', long, value_name = "SUBVOLID", hide = true)]
    subvol_extents: Option<OsString>,
    /// Taken for the sake of btrfs-progs; there is one mode, which needs little memory
    #[arg(long, value_enum, value_name = "MODE", hide = true)]
    mode: Option<Mode>,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Original,
    Lowmem,
}

impl Check {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.refuse_unsupported()?;
        let quiet = self.quiet || console.quiet;
        let is_text = !console.is_json() && !quiet;
        let shows_progress = is_text || self.progress && !quiet;
        let shown = Escaped::of(self.named[0].as_path()).to_string();
        if is_text {
            writeln!(console.out, "Opening filesystem to check...")?;
        }
        let check = self
            .open(console)
            .context(format!("cannot open '{shown}'"))?;
        if is_text {
            writeln!(console.out, "Checking filesystem on {shown}")?;
            writeln!(console.out, "UUID: {}", check.uuid())?;
            console.out.flush()?;
        }
        if shows_progress {
            console.start_progress(PROGRESS);
        }
        let mut phases = Shown::new(self.progress);
        let report = check.run(&mut |event: &Event<'_>| {
            if shows_progress && let Event::Phase(progress) = event {
                phases.show(console, progress);
            }
            ControlFlow::Continue(())
        });
        phases.end(console);
        console.end_progress();
        let report = report.reason().context(format!("cannot check '{shown}'"))?;
        if report.has_log {
            console.warning("the volume has a log, which the next mount replays");
        }
        if report.has_quotas {
            console.warning("the volume has quota groups: their sums are not checked");
        }
        if console.is_json() {
            json::write_map(&mut console.out, "check", &ReportJson(&report))?
        } else {
            print(&mut console.out, &report, quiet)?
        }
        if !report.is_clean() {
            console.error_was_reported();
        }
        Ok(())
    }

    /// Refuses options of btrfs-progs that write, or that request a check which does not exist.
    fn refuse_unsupported(&self) -> anyhow::Result<()> {
        const NO_REPAIR: &str = "ubtrfs only finds faults";
        let refused = [
            (self.repair, "--repair", NO_REPAIR),
            (self.init_csum_tree, "--init-csum-tree", NO_REPAIR),
            (self.init_extent_tree, "--init-extent-tree", NO_REPAIR),
            (
                self.clear_space_cache.is_some(),
                "--clear-space-cache",
                "a check writes nothing",
            ),
            (
                self.qgroup_report,
                "--qgroup-report",
                "the sums of quota groups are not checked",
            ),
            (
                self.subvol_extents.is_some(),
                "--subvol-extents",
                "'inspect-internal logical-resolve' shows the files that share an extent",
            ),
        ];
        match refused.iter().find(|(is_asked, ..)| *is_asked) {
            Some((_, option, reason)) => bail!("{option} is not supported: {reason}"),
            None => Ok(()),
        }
    }

    fn open(&self, console: &mut Console) -> anyhow::Result<OpenCheck> {
        let names = self.devices.all_named(&self.named)?;
        let places = self.devices.places(&names, DeviceAccess::Read)?;
        let checker = self.checker().scan(places);
        let open = || {
            let opened = checker.open(&names).reason();
            opened.map_err(anyhow::Error::from)
        };
        let check = held::when_free(held::FOR_COMMANDS, open).map_err(held::name_the_mount)?;
        for (path, holder) in check.holders() {
            if !is_mounted(&holder) {
                continue;
            }
            let path = Escaped::of(&path).to_string();
            if !self.force {
                bail!("{path} is in use ({holder}): use --force to check it all the same");
            }
            console.warning(format_args!(
                "{path} is in use ({holder}): the findings may be wrong"
            ));
        }
        Ok(check)
    }

    fn checker(&self) -> Checker {
        let mut checker = Checker::new()
            .max_issues(self.max_issues)
            .read_data(self.check_data_csum)
            .degraded(self.devices.is_degraded())
            .backup_root(self.backup);
        if let Some(volume) = self.devices.chosen_volume() {
            checker = checker.volume(volume);
        }
        if let Some(mib) = self.memory {
            checker = checker.memory_bytes(mib.clamp(LEAST_MEMORY_MIB, 1 << 20) << 20);
        }
        if let Some(copy) = self.super_ {
            checker = checker.superblock_copy(copy);
        }
        if let Some(logical) = self.tree_root {
            checker = checker.tree_root(logical);
        }
        if let Some(logical) = self.chunk_root {
            checker = checker.chunk_root(logical);
        }
        checker
    }
}

/// Returns whether an image with this holder counts as mounted. An image that is only attached to a loop
/// device may be checked.
fn is_mounted(holder: &Holder) -> bool {
    let Holder::Loop(name) = holder else {
        return true;
    };
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let device = Path::new("/dev").join(name);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| line.split(' ').next())
        .any(|source| Path::new(source) == device)
}

/// The progress last displayed.
struct Shown {
    /// Whether to print counts too, as without a terminal.
    with_counts: bool,
    last: Option<(PhaseProgress, Instant)>,
}

/// The time between two progress lines of one phase.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

impl Shown {
    fn new(with_counts: bool) -> Shown {
        Shown {
            with_counts,
            last: None,
        }
    }

    fn show(&mut self, console: &mut Console, progress: &PhaseProgress) {
        let is_new = match &self.last {
            Some((last, _)) => last.phase != progress.phase,
            None => true,
        };
        if is_new {
            self.end(console);
            let line = subject(progress);
            match console.progress() {
                Some(bar) => bar.suspend(|| eprintln!("{line}")),
                None => eprintln!("{line}"),
            }
        }
        let mut at = match &self.last {
            Some((_, at)) if !is_new => *at,
            _ => clock::now(),
        };
        if let Some(bar) = console.progress() {
            bar.set_message(counts(progress));
        } else if self.with_counts && clock::now() - at >= PROGRESS_INTERVAL {
            eprintln!("{}", counts(progress));
            at = clock::now();
        }
        self.last = Some((*progress, at));
    }

    /// Prints the final counts of the last phase.
    fn end(&mut self, console: &Console) {
        if let Some((last, _)) = self.last.take()
            && self.with_counts
            && console.progress().is_none()
        {
            eprintln!("{}", counts(&last));
        }
    }
}

fn subject(progress: &PhaseProgress) -> String {
    let PhaseProgress {
        phase,
        phases,
        subject,
        ..
    } = progress;
    format!("[{phase}/{phases}] checking {subject}")
}

fn counts(progress: &PhaseProgress) -> String {
    let PhaseProgress { blocks, issues, .. } = progress;
    format!("{}: {blocks} blocks, {issues} issues", subject(progress))
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn print(out: &mut dyn Write, report: &CheckReport, quiet: bool) -> std::io::Result<()> {
    for issue in &report.issues {
        writeln!(out, "{} {issue}", word(issue.severity()))?;
    }
    if report.unlisted() > 0 {
        writeln!(out, "{} more issues are not listed", report.unlisted())?;
    }
    if report.suppressed > 0 {
        let count = report.suppressed;
        writeln!(
            out,
            "{count} findings that may only follow from unreadable blocks are not listed"
        )?;
    }
    if quiet {
        return Ok(());
    }
    for mark in &report.marks {
        let MakerMark {
            maker,
            description,
            count,
            ..
        } = mark;
        if mark.is_tree {
            writeln!(out, "mark of {maker}: {description}, not compared")?;
        } else {
            writeln!(out, "mark of {maker}: {description}: {count}")?;
        }
    }
    if report.is_dump {
        writeln!(out, "data was not read: a metadata dump has none")?;
    } else if !report.data_was_read {
        writeln!(out, "data was not read: use --check-data-csum for it")?;
    }
    let figures = &report.figures;
    let mut verdict = match report.errors {
        0 => "no error found".to_owned(),
        errors => format!("{errors} error(s) found"),
    };
    for (count, name) in [(report.warnings, "warning"), (report.notes, "note")] {
        if count > 0 && report.is_clean() {
            verdict += &format!(", {count} {name}(s)");
        }
    }
    writeln!(out, "found {} bytes used, {verdict}", figures.bytes_used)?;
    for (name, value) in [
        ("total csum bytes", figures.csum_bytes),
        ("total tree bytes", figures.tree_bytes),
        ("total fs tree bytes", figures.fs_tree_bytes),
        ("total extent tree bytes", figures.extent_tree_bytes),
        ("btree space waste bytes", figures.waste_bytes),
        ("file data blocks allocated", figures.data_bytes_allocated),
        (" referenced", figures.data_bytes_referenced),
    ] {
        let separator = if name.starts_with(' ') { " " } else { ": " };
        writeln!(out, "{name}{separator}{value}")?;
    }
    Ok(())
}

/// A report in JSON.
struct ReportJson<'a>(&'a CheckReport);

impl Serialize for ReportJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let report = self.0;
        let figures = &report.figures;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("fsid", &report.uuid.to_string())?;
        map.serialize_entry("clean", &report.is_clean())?;
        map.serialize_entry("errors", &report.errors)?;
        map.serialize_entry("warnings", &report.warnings)?;
        map.serialize_entry("notes", &report.notes)?;
        map.serialize_entry("unlisted", &report.unlisted())?;
        map.serialize_entry("suppressed", &report.suppressed)?;
        map.serialize_entry("log_tree", &report.has_log)?;
        map.serialize_entry("quota_groups", &report.has_quotas)?;
        map.serialize_entry("data_read", &report.data_was_read)?;
        map.serialize_entry("bytes_used", &figures.bytes_used)?;
        map.serialize_entry("csum_bytes", &figures.csum_bytes)?;
        map.serialize_entry("tree_bytes", &figures.tree_bytes)?;
        map.serialize_entry("fs_tree_bytes", &figures.fs_tree_bytes)?;
        map.serialize_entry("extent_tree_bytes", &figures.extent_tree_bytes)?;
        map.serialize_entry("waste_bytes", &figures.waste_bytes)?;
        map.serialize_entry("data_bytes_allocated", &figures.data_bytes_allocated)?;
        map.serialize_entry("data_bytes_referenced", &figures.data_bytes_referenced)?;
        let marks: Vec<_> = report.marks.iter().map(mark_to_json).collect();
        map.serialize_entry("marks", &marks)?;
        let issues: Vec<_> = report.issues.iter().map(issue_to_json).collect();
        map.serialize_entry("issues", &issues)?;
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct MarkJson {
    maker: &'static str,
    name: &'static str,
    description: String,
    count: u64,
}

#[derive(Debug, Serialize)]
struct IssueJson {
    code: String,
    name: &'static str,
    severity: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<u64>,
    /// objectid, type, offset
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<(u64, u8, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytenr: Option<u64>,
}

fn mark_to_json(mark: &MakerMark) -> MarkJson {
    MarkJson {
        maker: mark.maker,
        name: mark.name,
        description: mark.description.clone(),
        count: mark.count,
    }
}

fn issue_to_json(issue: &CheckIssue) -> IssueJson {
    let (fault, at) = (&issue.fault, &issue.at);
    IssueJson {
        code: fault.code(),
        name: fault.name(),
        severity: word(issue.severity()),
        message: fault.to_string(),
        device: at.devid.map(|id| id.0),
        tree: at.tree.map(|id| id.0),
        key: at
            .key
            .map(|key| (key.objectid, key.item_type.0, key.offset)),
        bytenr: at.bytenr,
    }
}

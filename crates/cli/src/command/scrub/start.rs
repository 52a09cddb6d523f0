//! `ubtrfs scrub start` and `ubtrfs scrub resume`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ubtrfs::{DeviceScrub, ScrubOptions};
use ubtrfs_device::clock as monotonic;

use super::outcome::Outcome;
use super::record::{DeviceRecord, Record};
use super::report::{ScrubJson, totals, write_damage, write_state};
use super::serving::Serving;
use super::summary::{Limit, Shown, Style};
use super::target::{Target, must_not_run};
use crate::presentation::console::Console;
use crate::presentation::size_suffix::parse_size;
use crate::presentation::units::Units;
use crate::presentation::{clock, interrupt, json};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{DeviceOptions, Location};

/// Set for the process in the background.
const IN_BACKGROUND: &str = "UBTRFS_SCRUB_IN_BACKGROUND";
/// The last line that the background process writes, once its scrub has begun.
const BEGUN: &str = "begun";
const UNCORRECTABLE: u8 = 3;
const NOTHING_TO_RESUME: u8 = 2;
/// The times between two updates of the record in memory and on disk.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// The progress of a scrub.
const PROGRESS: &str = "{spinner} {binary_bytes} of {binary_total_bytes} scrubbed {wide_msg}";

/// Start a new scrub
///
/// Data and tree blocks of every copy are read and verified. Damage is repaired from other copies or from parity, and damaged
/// files without a good copy are listed. An image needs no mount and no root. Exit code 3: there are uncorrectable errors.
#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    common: Common,
    /// Start even if a scrub seems to be running, or its record is damaged
    #[arg(short)]
    force: bool,
    /// Read at most this many bytes per second from each device; may end with K, M, G, T, P or E
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    limit: u64,
}

/// Continue a scrub that was cancelled or interrupted
///
/// Devices that were finished are not scrubbed again. Exit code 2: there is nothing to resume.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// An image, a device, or a path in a mount
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Stay in the foreground until the scrub ends
    #[arg(short = 'B')]
    foreground: bool,
    /// Print the results of each device (with -B)
    #[arg(short = 'd')]
    by_device: bool,
    /// Write nothing: only find damage
    #[arg(short = 'r')]
    read_only: bool,
    /// Print all counts instead of a summary
    #[arg(short = 'R')]
    raw: bool,
    /// Taken for the sake of btrfs-progs, without effect: the class of ionice(1)
    #[arg(short = 'c', value_name = "CLASS", hide = true)]
    io_class: Option<u8>,
    /// Taken for the sake of btrfs-progs, without effect: the priority of ionice(1)
    #[arg(short = 'n', value_name = "PRIORITY", hide = true)]
    io_priority: Option<u8>,
    #[command(flatten)]
    devices: DeviceOptions,
}

/// Differences of a start and a resume.
#[derive(Clone, Copy, Debug)]
struct Manner {
    is_resume: bool,
    is_forced: bool,
    limit: u64,
}

impl Start {
    pub(super) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.common.run(console, self.manner())
    }

    fn manner(&self) -> Manner {
        Manner {
            is_resume: false,
            is_forced: self.force,
            limit: self.limit,
        }
    }
}

impl ByIoctls for Start {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.common.run_by_ioctls(console, self.manner())
    }
}

impl Resume {
    pub(super) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.common.run(console, Resume::MANNER)
    }

    const MANNER: Manner = Manner {
        is_resume: true,
        is_forced: false,
        limit: 0,
    };
}

impl ByIoctls for Resume {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.common.run_by_ioctls(console, Resume::MANNER)
    }
}

impl Common {
    fn run(&self, console: &mut Console, manner: Manner) -> anyhow::Result<()> {
        let is_in_shell = self.location.session().is_some();
        if !self.foreground && !is_in_shell && std::env::var_os(IN_BACKGROUND).is_none() {
            return run_in_background(console);
        }
        let (location, devices) = (&self.location, &self.devices);
        let target = Target::open(location, devices, self.read_only, manner.is_forced)?;
        self.scrub(console, target, manner)
    }

    fn run_by_ioctls(&self, console: &mut Console, manner: Manner) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        if !self.foreground && std::env::var_os(IN_BACKGROUND).is_none() {
            return run_in_background(console);
        }
        let asked = Asked::open(&self.location)?;
        let target = Target::of_mount(asked, None, self.location.to_string())?;
        self.scrub(console, target, manner)
    }

    fn scrub(&self, console: &mut Console, target: Target, manner: Manner) -> anyhow::Result<()> {
        let fsid = target.fsid.clone();
        if !manner.is_forced {
            must_not_run(&fsid, &target.shown)?;
        }
        let before = match Record::read(&fsid) {
            Ok(record) => record,
            Err(_) if manner.is_forced => Record::default(),
            Err(error) => return Err(error).context("cannot read the record of the last scrub"),
        };
        let now = clock::now().as_second().unsigned_abs();
        let mut record = Record::default();
        let mut options = ScrubOptions::new()
            .read_only(self.read_only)
            .bytes_per_second(manner.limit);
        let mut wanted = Vec::new();
        for (id, _) in &target.devices {
            let old = before.0.get(id).copied();
            let is_done = old.is_none_or(|old| old.is_finished && !old.is_cancelled);
            let mut device = match old {
                Some(old) if manner.is_resume => old,
                _ => DeviceRecord::default(),
            };
            if !manner.is_resume {
                device.started = now;
            } else if !is_done {
                device.resumed = now;
                options = options.resume_device(*id, device.counts);
            }
            if !manner.is_resume || !is_done {
                device.is_finished = false;
                device.is_cancelled = false;
                wanted.push(*id);
            }
            record.0.insert(*id, device);
        }
        // Devices that are not scrubbed now keep their records.
        for (id, old) in &before.0 {
            record.0.entry(*id).or_insert(*old);
        }
        if wanted.is_empty() {
            let shown = &target.shown;
            writeln!(
                console.out,
                "scrub: nothing to resume for {shown}, fsid {fsid}"
            )?;
            console.fail_with(NOTHING_TO_RESUME);
            console.error_was_reported();
            return Ok(());
        }
        options = options.devices(wanted.iter().copied());
        self.announce(console, (&target.shown, &fsid), &wanted, manner.limit)?;
        let serving = Serving::start(&fsid, record.clone());
        let serving = serving.context("cannot serve the status of the scrub")?;
        let devices = target.devices.clone();
        let limit = match target.mount() {
            Some(mount) if manner.limit == 0 => mount.shown_limit(),
            _ if manner.limit == 0 => Limit::Unlimited,
            _ if devices.len() > 1 => Limit::SomeDevices,
            _ => Limit::Bytes(manner.limit),
        };
        let outcome = run(console, target, &options, &mut record, &serving)?;
        drop(serving);
        record
            .write(&fsid)
            .context("cannot write the record of the scrub")?;
        self.finish(console, &fsid, &devices, &wanted, &record, &outcome, limit)
    }

    /// Writes that the scrub has begun, for the user or for the process that waits for this one.
    fn announce(
        &self,
        console: &mut Console,
        (shown, fsid): (&str, &str),
        wanted: &[u64],
        limit: u64,
    ) -> anyhow::Result<()> {
        let is_in_background = std::env::var_os(IN_BACKGROUND).is_some();
        if is_in_background {
            let pid = std::process::id();
            if !console.quiet {
                writeln!(
                    console.out,
                    "scrub started on {shown}, fsid {fsid} (pid={pid})"
                )?;
            }
        }
        if !console.quiet && !console.is_json() {
            let limit = match limit {
                0 => String::new(),
                limit => format!(" (limit {}/s)", Units::default().size(limit)),
            };
            for id in wanted {
                writeln!(console.out, "Starting scrub on devid {id}{limit}")?;
            }
        }
        if is_in_background {
            writeln!(console.out, "{BEGUN}")?;
            console.out.flush()?;
            // The process that started this one reads until here, and its terminal may be closed.
            let _ = rustix::process::setsid();
            let null = std::fs::File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&null)?;
            rustix::stdio::dup2_stderr(&null)?;
        }
        Ok(console.out.flush()?)
    }

    #[allow(clippy::too_many_arguments)]
    fn finish(
        &self,
        console: &mut Console,
        fsid: &str,
        devices: &[(u64, String)],
        wanted: &[u64],
        record: &Record,
        outcome: &Outcome,
        limit: Limit,
    ) -> anyhow::Result<()> {
        if std::env::var_os(IN_BACKGROUND).is_some() {
            return Ok(());
        }
        let report = outcome.report.as_ref();
        if console.is_json() {
            let json = ScrubJson::new(fsid, devices, record, false, report);
            json::write_map(&mut console.out, "scrub", &json)?;
        } else if !console.quiet {
            let state = if outcome.is_cancelled {
                "canceled"
            } else {
                "done"
            };
            let style = Style {
                is_raw: self.raw,
                units: Units::default(),
            };
            let by_device = self.by_device.then_some(state);
            if by_device.is_none() {
                writeln!(console.out, "scrub {state} for {fsid}")?;
            }
            let shown = |mut device: DeviceRecord, _: Option<u64>| {
                // A scrub that ended has its own size.
                device.total_bytes = 0;
                Shown {
                    device,
                    is_running: false,
                    limit,
                    total: None,
                }
            };
            write_state(&mut console.out, devices, record, by_device, shown, style)?;
            if let Some(report) = report {
                write_damage(&mut console.out, report)?;
            }
        }
        console.out.flush()?;
        self.judge(console, wanted, record, outcome)
    }

    /// Reports errors, and sets the exit code.
    fn judge(
        &self,
        console: &mut Console,
        wanted: &[u64],
        record: &Record,
        outcome: &Outcome,
    ) -> anyhow::Result<()> {
        for device in outcome.devices.iter().filter(|device| device.is_missing) {
            console.warning(format_args!("device {} not present", device.device_id));
        }
        if let Some(reason) = outcome.report.as_ref().and_then(|of| of.unsaved.as_ref()) {
            console.warning(format_args!(
                "the error counts of devices are not saved: {reason}"
            ));
        }
        for (id, error) in &outcome.failed {
            console.error(format_args!("scrubbing failed for device id {id}: {error}"));
        }
        let has_uncorrectable = |device: &&DeviceScrub| {
            device.counts.uncorrectable_errors > 0 || device.counts.unverified_errors > 0
        };
        let uncorrectable = outcome.devices.iter().filter(has_uncorrectable).count();
        let counts = totals(record, wanted).counts;
        let corrected = counts.corrected_errors + counts.parity_corrected;
        if uncorrectable > 0 {
            console.fail_with(UNCORRECTABLE);
            console.error(format_args!(
                "there are {uncorrectable} uncorrectable errors"
            ));
        } else if counts.errors() > 0 {
            let done = if self.read_only {
                "can be corrected"
            } else {
                "corrected"
            };
            console.warning(format_args!(
                "errors detected during scrubbing, {corrected} {done}"
            ));
        }
        if outcome.is_cancelled {
            console.error_was_reported();
        }
        Ok(())
    }
}

/// Runs a scrub, and keeps its record current. Ctrl-C ends it, so that it can be resumed.
fn run(
    console: &mut Console,
    target: Target,
    options: &ScrubOptions,
    record: &mut Record,
    serving: &Serving,
) -> anyhow::Result<Outcome> {
    if interrupt::pressed().is_none() {
        interrupt::watch().context("cannot handle signals")?;
    }
    let fsid = target.fsid.clone();
    console.start_progress(PROGRESS);
    let start = monotonic::now();
    let before = record.clone();
    let mut live: Option<Instant> = None;
    let mut file = start;
    let mut write_error = record.write(&fsid).err();
    let mut see = |devices: &[DeviceScrub]| {
        let elapsed = monotonic::now() - start;
        note(record, &before, devices, elapsed);
        if let Some(bar) = console.progress() {
            let total = devices.iter().map(|device| device.total_bytes).sum();
            bar.set_length(total);
            let bytes = |of: &DeviceScrub| of.counts.data_bytes + of.counts.tree_bytes;
            bar.set_position(devices.iter().map(bytes).sum());
            let errors: u64 = devices.iter().map(|of| of.counts.errors()).sum();
            bar.set_message(format!("{errors} errors"));
        }
        if live.is_none_or(|live| monotonic::now() - live >= LIVE_INTERVAL) {
            live = Some(monotonic::now());
            serving.update(record);
        }
        if monotonic::now() - file >= FILE_INTERVAL {
            file = monotonic::now();
            write_error = record.write(&fsid).err();
        }
        if interrupt::take() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let outcome = target.run(options, &mut see);
    console.end_progress();
    let outcome = outcome?;
    if let Some(error) = write_error {
        console.warning(format_args!(
            "cannot write the record of the scrub: {error}"
        ));
    }
    note(record, &before, &outcome.devices, monotonic::now() - start);
    for device in &outcome.devices {
        if let Some(of) = record.0.get_mut(&device.device_id) {
            let is_failed = outcome.failed.iter().any(|(id, _)| *id == device.device_id);
            of.is_cancelled = !device.is_finished;
            of.is_finished = !is_failed;
        }
    }
    Ok(outcome)
}

/// Enters the counts into the record.
fn note(record: &mut Record, before: &Record, devices: &[DeviceScrub], elapsed: Duration) {
    for device in devices {
        let Some(of) = record.0.get_mut(&device.device_id) else {
            continue;
        };
        let earlier = before.0.get(&device.device_id).map_or(0, |of| of.duration);
        of.counts = device.counts;
        of.total_bytes = device.total_bytes;
        of.duration = earlier + elapsed.as_secs();
    }
}

/// Starts this command once more as a process of its own, and waits until its scrub has begun.
fn run_in_background(console: &mut Console) -> anyhow::Result<()> {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| OsString::from("ubtrfs"));
    let program = std::env::current_exe().context("cannot find the program")?;
    let mut child = Command::new(program)
        .arg0(name)
        .args(args)
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process for the scrub")?;
    let Some(stdout) = child.stdout.take() else {
        bail!("the process of the scrub has no output");
    };
    let mut lines = BufReader::new(stdout).lines();
    let mut has_begun = false;
    let mut text = String::new();
    while !has_begun && let Some(Ok(line)) = lines.next() {
        if line == BEGUN {
            has_begun = true;
        } else {
            text += &line;
            text.push('\n');
        }
    }
    if !has_begun {
        console.out.write_all(text.as_bytes())?;
        let ended = child.wait().context("cannot wait for the scrub")?;
        let code = ended.code().and_then(|code| u8::try_from(code).ok());
        console.fail_with(code.unwrap_or(1));
        console.error_was_reported();
        return Ok(());
    }
    Ok(console.out.write_all(text.as_bytes())?)
}

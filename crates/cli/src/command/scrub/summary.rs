//! The text about a scrub, in the layout of btrfs-progs.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::ScrubCounts;

use super::record::DeviceRecord;
use crate::presentation::clock;
use crate::presentation::units::Units;

/// The options of the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// All counts, instead of a summary.
    pub(super) is_raw: bool,
    pub(super) units: Units,
}

/// The state of a scrub, of one device or of all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) device: DeviceRecord,
    pub(super) is_running: bool,
    pub(super) limit: Limit,
    /// The size of everything on a mount.
    pub(super) total: Option<u64>,
}

/// The speed limit to mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Unlimited,
    Bytes(u64),
    /// Several devices, some with a limit.
    SomeDevices,
}

impl Shown {
    pub(super) fn status(&self) -> &'static str {
        let device = &self.device;
        if self.is_running {
            "running"
        } else if device.is_cancelled {
            "aborted"
        } else if device.is_finished {
            "finished"
        } else {
            "interrupted"
        }
    }

    pub(super) fn write(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        let device = &self.device;
        if device.started == 0 && device.resumed == 0 {
            return writeln!(out, "\tno stats available");
        }
        match device.resumed {
            0 => writeln!(out, "Scrub started:    {}", date(device.started))?,
            resumed => writeln!(out, "Scrub resumed:    {}", date(resumed))?,
        }
        writeln!(out, "Status:           {}", self.status())?;
        writeln!(out, "Duration:         {}", duration(device.duration))?;
        if style.is_raw {
            return write_raw(out, &device.counts);
        }
        self.write_sizes(out, style.units)?;
        write_errors(out, &device.counts)
    }

    fn write_sizes(&self, out: &mut dyn Write, units: Units) -> io::Result<()> {
        let device = &self.device;
        let done = device.bytes();
        let total = match (self.total, self.status()) {
            (Some(total), _) => total.max(done),
            (None, "finished") => done,
            (None, _) => device.total_bytes.max(done),
        };
        let rate = done / device.duration.max(1);
        if self.is_running && rate > 0 {
            let left = (total - done) / rate;
            let end = clock::now().as_second().unsigned_abs() + left;
            writeln!(out, "Time left:        {}", duration(left))?;
            writeln!(out, "ETA:              {}", date(end))?;
        }
        writeln!(out, "Total to scrub:   {}", units.size(total))?;
        if self.is_running {
            let percent = 100.0 * done as f64 / total.max(1) as f64;
            let done = units.size(done);
            writeln!(out, "Bytes scrubbed:   {done}  ({percent:.2}%)")?;
        }
        let limit = match self.limit {
            Limit::Unlimited => String::new(),
            Limit::Bytes(limit) => format!(" (limit {}/s)", units.size(limit)),
            Limit::SomeDevices => " (some device limits set)".to_owned(),
        };
        writeln!(out, "Rate:             {}/s{limit}", units.size(rate))
    }
}

fn write_errors(out: &mut dyn Write, counts: &ScrubCounts) -> io::Result<()> {
    write!(out, "Error summary:   ")?;
    let kinds = [
        ("read", counts.read_errors),
        ("super", counts.super_errors),
        ("verify", counts.verify_errors),
        ("csum", counts.csum_errors),
        ("p", counts.p_errors),
        ("q", counts.q_errors),
    ];
    if counts.errors() == 0 && counts.unverified_errors == 0 {
        return writeln!(out, " no errors found");
    }
    for (name, count) in kinds.into_iter().filter(|(_, count)| *count > 0) {
        write!(out, " {name}={count}")?;
    }
    writeln!(out)?;
    let corrected = counts.corrected_errors + counts.parity_corrected;
    writeln!(out, "  Corrected:      {corrected}")?;
    writeln!(out, "  Uncorrectable:  {}", counts.uncorrectable_errors)?;
    writeln!(out, "  Unverified:     {}", counts.unverified_errors)
}

fn write_raw(out: &mut dyn Write, counts: &ScrubCounts) -> io::Result<()> {
    for (name, value) in named_counts(counts) {
        writeln!(out, "\t{name}: {value}")?;
    }
    Ok(())
}

/// Returns the counts with the names and in the order of btrfs-progs, then the errors of parity.
pub(super) fn named_counts(counts: &ScrubCounts) -> Vec<(&'static str, u64)> {
    let mut named = vec![
        ("data_extents_scrubbed", counts.data_extents),
        ("tree_extents_scrubbed", counts.tree_extents),
        ("data_bytes_scrubbed", counts.data_bytes),
        ("tree_bytes_scrubbed", counts.tree_bytes),
        ("read_errors", counts.read_errors),
        ("csum_errors", counts.csum_errors),
        ("verify_errors", counts.verify_errors),
        ("no_csum", counts.no_csum),
        ("csum_discards", counts.csum_discards),
        ("super_errors", counts.super_errors),
        ("malloc_errors", counts.malloc_errors),
        ("uncorrectable_errors", counts.uncorrectable_errors),
        ("unverified_errors", counts.unverified_errors),
        ("corrected_errors", counts.corrected_errors),
        ("last_physical", counts.last_physical),
    ];
    let parity = [
        ("p_errors", counts.p_errors),
        ("q_errors", counts.q_errors),
        ("parity_corrected", counts.parity_corrected),
    ];
    named.extend(parity.into_iter().filter(|(_, count)| *count > 0));
    named
}

/// Formats seconds since 1970 as "Sun Nov 29 02:06:46 2026".
fn date(seconds: u64) -> String {
    clock::ctime(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn duration(seconds: u64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
}

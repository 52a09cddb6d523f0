//! The results of a scrub: the summary, the damage and its files, as text or in JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};
use ubtrfs::{DamageKind, DamagedFile, ScrubDamage, ScrubReport};

use super::record::{DeviceRecord, Record};
use super::summary::{Limit, Shown, Style, named_counts};
use crate::presentation::quoting::Escaped;
use crate::presentation::{clock, json};

/// Writes the heading of a device.
pub(super) fn write_device_head(
    out: &mut dyn Write,
    device: &(u64, String),
    state: &str,
) -> io::Result<()> {
    let (id, path) = device;
    writeln!(out, "\nScrub device {path} (id {id}) {state}")
}

/// Returns the record of all devices together.
pub(super) fn totals(record: &Record, ids: &[u64]) -> DeviceRecord {
    let mut sum = DeviceRecord {
        is_finished: true,
        ..DeviceRecord::default()
    };
    let chosen = record.0.iter().filter(|(id, _)| ids.contains(id));
    for (_, device) in chosen {
        sum.counts = sum.counts.plus(&device.counts);
        sum.started = sum.started.max(device.started);
        sum.resumed = sum.resumed.max(device.resumed);
        sum.duration = sum.duration.max(device.duration);
        sum.total_bytes += device.total_bytes;
        sum.is_cancelled |= device.is_cancelled;
        sum.is_finished &= device.is_finished;
    }
    sum
}

/// Writes the damage that is left, and the files that it belongs to.
pub(super) fn write_damage(out: &mut dyn Write, report: &ScrubReport) -> io::Result<()> {
    for damage in report
        .damage
        .iter()
        .filter(|of| !is_listed_by_file(report, of))
    {
        let ScrubDamage {
            device_id,
            physical,
            len_bytes,
            logical,
            message,
            ..
        } = damage;
        let kind = kind_text(damage);
        writeln!(
            out,
            "damaged: {kind} at {logical}, {len_bytes} bytes, device {device_id} at {physical}: {message}"
        )?;
    }
    for file in &report.files {
        let DamagedFile {
            subvolume_id,
            inode,
            ..
        } = file;
        let ranges = file.ranges.iter().map(|range| {
            let end = range.offset + range.len_bytes - 1;
            format!("{}-{end}", range.offset)
        });
        let ranges: Vec<String> = ranges.collect();
        let ranges = ranges.join(", ");
        if file.paths.is_empty() {
            writeln!(
                out,
                "damaged: subvolume {subvolume_id}, inode {inode}: {ranges}"
            )?;
        }
        for path in &file.paths {
            let path = Escaped::of(path);
            writeln!(out, "damaged: subvolume {subvolume_id}, /{path}: {ranges}")?;
        }
    }
    if report.unlisted > 0 {
        writeln!(
            out,
            "{} more damaged ranges are not listed",
            report.unlisted
        )?;
    }
    if !report.are_all_files {
        writeln!(out, "there may be more damaged files")?;
    }
    Ok(())
}

/// Returns whether the files of damaged data are known, so that its addresses need not be shown.
fn is_listed_by_file(report: &ScrubReport, damage: &ScrubDamage) -> bool {
    damage.kind == DamageKind::Data && report.are_all_files && !report.files.is_empty()
}

fn kind_text(damage: &ScrubDamage) -> String {
    match damage.kind {
        DamageKind::Data => "data".to_owned(),
        DamageKind::TreeBlock { tree: Some(tree) } => format!("block of tree {tree}"),
        DamageKind::TreeBlock { tree: None } => "tree block".to_owned(),
        DamageKind::Superblock => "superblock".to_owned(),
        _ => "unverified range".to_owned(),
    }
}

/// The results in JSON.
#[derive(Debug, Serialize)]
pub(super) struct ScrubJson {
    fsid: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed: Option<String>,
    duration_seconds: u64,
    counts: Map<String, Value>,
    devices: Vec<DeviceJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Vec<DamageJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged_files: Option<Vec<FileJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unlisted: Option<u64>,
}

#[derive(Debug, Serialize)]
struct DeviceJson {
    devid: u64,
    path: String,
    status: &'static str,
    counts: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct DamageJson {
    kind: String,
    logical: u64,
    bytes: u64,
    devid: u64,
    physical: u64,
    message: String,
}

#[derive(Debug, Serialize)]
struct FileJson {
    subvolume: u64,
    inode: u64,
    paths: Vec<String>,
    /// Offset and length.
    ranges: Vec<(u64, u64)>,
}

impl ScrubJson {
    pub(super) fn new(
        fsid: &str,
        devices: &[(u64, String)],
        record: &Record,
        is_running: bool,
        report: Option<&ScrubReport>,
    ) -> ScrubJson {
        let ids: Vec<u64> = devices.iter().map(|(id, _)| *id).collect();
        let shown = |device| Shown {
            device,
            is_running,
            limit: Limit::Unlimited,
            total: None,
        };
        let sum = totals(record, &ids);
        let listed = devices.iter().filter_map(|(id, path)| {
            let device = record.0.get(id)?;
            Some(DeviceJson {
                devid: *id,
                path: path.clone(),
                status: shown(*device).status(),
                counts: counts_to_json(device),
            })
        });
        ScrubJson {
            fsid: fsid.to_owned(),
            status: if record.0.is_empty() {
                "none"
            } else {
                shown(sum).status()
            },
            started: time(sum.started),
            resumed: time(sum.resumed),
            duration_seconds: sum.duration,
            counts: counts_to_json(&sum),
            devices: listed.collect(),
            damage: report.map(|report| report.damage.iter().map(damage_to_json).collect()),
            damaged_files: report.map(|report| report.files.iter().map(file_to_json).collect()),
            unlisted: report.map(|report| report.unlisted),
        }
    }
}

fn time(seconds: u64) -> Option<String> {
    let since = std::time::Duration::from_secs(seconds);
    (seconds > 0).then(|| clock::rfc3339(std::time::UNIX_EPOCH + since))
}

fn counts_to_json(device: &DeviceRecord) -> Map<String, Value> {
    let counts = named_counts(&device.counts).into_iter();
    counts
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect()
}

fn damage_to_json(damage: &ScrubDamage) -> DamageJson {
    DamageJson {
        kind: kind_text(damage),
        logical: damage.logical,
        bytes: damage.len_bytes,
        devid: damage.device_id,
        physical: damage.physical,
        message: damage.message.clone(),
    }
}

fn file_to_json(file: &DamagedFile) -> FileJson {
    let paths = file.paths.iter();
    let ranges = file.ranges.iter();
    FileJson {
        subvolume: file.subvolume_id,
        inode: file.inode,
        paths: paths
            .map(|path| json::text(path.as_os_str().as_encoded_bytes()))
            .collect(),
        ranges: ranges
            .map(|range| (range.offset, range.len_bytes))
            .collect(),
    }
}

/// Writes the state of a scrub: of each device, or of all together.
pub(super) fn write_state(
    out: &mut dyn Write,
    devices: &[(u64, String)],
    record: &Record,
    by_device: Option<&str>,
    shown: impl Fn(DeviceRecord, Option<u64>) -> Shown,
    style: Style,
) -> io::Result<()> {
    let Some(state) = by_device else {
        let ids: Vec<u64> = devices.iter().map(|(id, _)| *id).collect();
        return shown(totals(record, &ids), None).write(out, style);
    };
    for device in devices {
        write_device_head(out, device, state)?;
        let found = record.0.get(&device.0).copied().unwrap_or_default();
        shown(found, Some(device.0)).write(out, style)?;
    }
    Ok(())
}

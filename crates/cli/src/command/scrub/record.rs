//! The record of the last scrub of a volume, in the format of btrfs-progs.
//!
//! The file `scrub.status.UUID` has a line for each device. Root and btrfs-progs share `/var/lib/btrfs`. Other users have
//! their files in `$XDG_STATE_HOME/ubtrfs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use ubtrfs::ScrubCounts;

const FIRST_LINE: &str = "scrub status:1";
const FOLDER_OF_ROOT: &str = "/var/lib/btrfs";

/// The record of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceRecord {
    pub(super) counts: ScrubCounts,
    /// Seconds since 1970.
    pub(super) started: u64,
    /// The same, or 0 if it was not resumed.
    pub(super) resumed: u64,
    pub(super) duration: u64,
    pub(super) is_cancelled: bool,
    pub(super) is_finished: bool,
    /// An estimate, only known while the scrub runs.
    pub(super) total_bytes: u64,
}

/// The records of all devices by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record(pub(super) BTreeMap<u64, DeviceRecord>);

/// Fields of a line, in the order of btrfs-progs.
const FIELDS: [&str; 19] = [
    "data_extents_scrubbed",
    "tree_extents_scrubbed",
    "data_bytes_scrubbed",
    "tree_bytes_scrubbed",
    "read_errors",
    "csum_errors",
    "verify_errors",
    "no_csum",
    "csum_discards",
    "super_errors",
    "malloc_errors",
    "uncorrectable_errors",
    "corrected_errors",
    "last_physical",
    "t_start",
    "t_resumed",
    "duration",
    "canceled",
    "finished",
];

impl DeviceRecord {
    pub(super) fn bytes(&self) -> u64 {
        self.counts.data_bytes + self.counts.tree_bytes
    }

    fn values(&self) -> [u64; 19] {
        let counts = &self.counts;
        [
            counts.data_extents,
            counts.tree_extents,
            counts.data_bytes,
            counts.tree_bytes,
            counts.read_errors,
            counts.csum_errors,
            counts.verify_errors,
            counts.no_csum,
            counts.csum_discards,
            counts.super_errors,
            counts.malloc_errors,
            counts.uncorrectable_errors,
            counts.corrected_errors,
            counts.last_physical,
            self.started,
            self.resumed,
            self.duration,
            self.is_cancelled.into(),
            self.is_finished.into(),
        ]
    }

    fn set(&mut self, name: &str, value: u64) {
        let counts = &mut self.counts;
        match name {
            "data_extents_scrubbed" => counts.data_extents = value,
            "tree_extents_scrubbed" => counts.tree_extents = value,
            "data_bytes_scrubbed" => counts.data_bytes = value,
            "tree_bytes_scrubbed" => counts.tree_bytes = value,
            "read_errors" => counts.read_errors = value,
            "csum_errors" => counts.csum_errors = value,
            "verify_errors" => counts.verify_errors = value,
            "no_csum" => counts.no_csum = value,
            "csum_discards" => counts.csum_discards = value,
            "super_errors" => counts.super_errors = value,
            "malloc_errors" => counts.malloc_errors = value,
            "uncorrectable_errors" => counts.uncorrectable_errors = value,
            "corrected_errors" => counts.corrected_errors = value,
            "last_physical" => counts.last_physical = value,
            "t_start" => self.started = value,
            "t_resumed" => self.resumed = value,
            "duration" => self.duration = value,
            "canceled" => self.is_cancelled = value != 0,
            "finished" => self.is_finished = value != 0,
            "total_bytes" => self.total_bytes = value,
            _ => {}
        }
    }
}

impl Record {
    /// Returns the text of the file.
    pub(super) fn to_text(&self, fsid: &str) -> String {
        self.text_with(fsid, |_| String::new())
    }

    /// Returns the text for a reader of a running scrub, which also has the estimated sizes.
    pub(super) fn to_live_text(&self, fsid: &str) -> String {
        self.text_with(fsid, |device| {
            format!("|total_bytes:{}", device.total_bytes)
        })
    }

    fn text_with(&self, fsid: &str, more: impl Fn(&DeviceRecord) -> String) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (id, device) in &self.0 {
            let _ = write!(text, "{fsid}:{id}");
            for (name, value) in FIELDS.iter().zip(device.values()) {
                let _ = write!(text, "|{name}:{value}");
            }
            text += &more(device);
            text.push('\n');
        }
        text
    }

    /// Parses a text. Lines of other volumes and unknown fields are skipped.
    pub(super) fn parse(text: &str, fsid: &str) -> Record {
        let mut record = Record::default();
        let lines = text.strip_prefix(FIRST_LINE).unwrap_or_default().lines();
        for line in lines {
            let mut fields = line.split('|');
            let id = fields
                .next()
                .and_then(|head| head.strip_prefix(fsid)?.strip_prefix(':')?.parse().ok());
            let Some(id) = id else {
                continue;
            };
            let mut device = DeviceRecord::default();
            for (name, value) in fields.filter_map(|field| field.split_once(':')) {
                if let Ok(value) = value.parse() {
                    device.set(name, value);
                }
            }
            record.0.insert(id, device);
        }
        record
    }

    /// Reads the record of a volume. It is empty if the volume was never scrubbed.
    pub(super) fn read(fsid: &str) -> io::Result<Record> {
        match fs::read_to_string(path("status", fsid)) {
            Ok(text) => Ok(Record::parse(&text, fsid)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the record of a volume.
    pub(super) fn write(&self, fsid: &str) -> io::Result<()> {
        let path = path("status", fsid);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut new = path.clone().into_os_string();
        new.push("_tmp");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(self.to_text(fsid).as_bytes())?;
        drop(file);
        fs::rename(&new, &path)
    }
}

/// Returns the path of a file about a volume: its record ("status"), or the socket of a running scrub ("progress").
pub(super) fn path(kind: &str, fsid: &str) -> PathBuf {
    folder().join(format!("scrub.{kind}.{fsid}"))
}

fn folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return FOLDER_OF_ROOT.into();
    }
    let absolute = |name: &str| {
        let folder = std::env::var_os(name).map(PathBuf::from)?;
        folder.is_absolute().then_some(folder)
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir);
    state.join("ubtrfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FSID: &str = "467b3c20-89fb-4ebf-8e65-55d29c333164";
    /// Written by btrfs-progs 6.14.
    const OF_PROGS: &str = "scrub status:1\n\
        467b3c20-89fb-4ebf-8e65-55d29c333164:1|data_extents_scrubbed:632|tree_extents_scrubbed:46|\
        data_bytes_scrubbed:41418752|tree_bytes_scrubbed:753664|read_errors:0|csum_errors:0|verify_errors:0|\
        no_csum:0|csum_discards:0|super_errors:0|malloc_errors:0|uncorrectable_errors:0|corrected_errors:0|\
        last_physical:147324928|t_start:1795918007|t_resumed:0|duration:2|canceled:1|finished:1\n";

    #[test]
    fn record_of_progs_is_read_and_written_alike() {
        let record = Record::parse(OF_PROGS, FSID);
        assert_eq!(record.0[&1].counts.last_physical, 147_324_928);
        assert!(record.0[&1].is_cancelled && record.0[&1].is_finished);
        assert_eq!(record.to_text(FSID), OF_PROGS);
    }

    #[test]
    fn other_volumes_and_garbage_are_skipped() {
        let other = OF_PROGS.replace("467b", "567b");
        assert_eq!(Record::parse(&other, FSID), Record::default());
        assert_eq!(Record::parse("something else\n", FSID), Record::default());
        let unknown = OF_PROGS.replace("|finished", "|unverified_errors:x|later:1|finished");
        assert_eq!(Record::parse(&unknown, FSID), Record::parse(OF_PROGS, FSID));
    }
}

//! Discards since a volume was mounted, as counted by the kernel or by the server of a mount.

use std::fs;
use std::ops::Sub;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::counters::DeviceCounts;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Discards {
    pub(crate) requests: f64,
    pub(crate) bytes: f64,
    /// Freed, and reused before it was discarded.
    pub(crate) saved_bytes: f64,
    /// Freed, and not discarded yet.
    pub(crate) waiting_bytes: f64,
}

impl Discards {
    /// Reads the counts of the volume with this fsid, on a device with counts `device`.
    pub(crate) fn of_kernel(fsid: &str, device: &DeviceCounts) -> Result<Discards> {
        let value = |name: &str| -> Result<f64> {
            let text = fs::read_to_string(format!("/sys/fs/btrfs/{fsid}/discard/{name}"))?;
            Ok(text.trim().parse()?)
        };
        Ok(Discards {
            requests: device.discards as f64,
            bytes: device.discarded_bytes as f64,
            saved_bytes: value("discard_bytes_saved")?,
            waiting_bytes: value("discardable_bytes")?,
        })
    }

    /// Parses the output of `filesystem stats --format json`.
    pub(crate) fn of_ubtrfs(json: &str) -> Result<Discards> {
        let all: Value = serde_json::from_str(json)?;
        let discard = &all["filesystem-stats"]["discard"];
        let number = |name: &str| discard[name].as_f64().context("no count of discards");
        Ok(Discards {
            requests: number("device_requests")?,
            bytes: number("device_bytes")?,
            saved_bytes: number("discard_bytes_saved")?,
            waiting_bytes: number("discardable_bytes")?,
        })
    }
}

impl Sub for Discards {
    type Output = Discards;

    fn sub(self, before: Discards) -> Discards {
        Discards {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            saved_bytes: self.saved_bytes - before.saved_bytes,
            waiting_bytes: self.waiting_bytes - before.waiting_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Discards;

    #[test]
    fn lines_of_the_server_are_understood() {
        let json = r#"{"filesystem-stats": {"discard": {"mode": "async", "discardable_bytes": 5,
            "discard_bytes_saved": 7, "device_requests": 2, "device_bytes": 8192}}}"#;
        let discards = Discards::of_ubtrfs(json).expect("it is what is printed");
        assert_eq!((discards.requests, discards.bytes), (2.0, 8192.0));
        assert_eq!((discards.saved_bytes, discards.waiting_bytes), (7.0, 5.0));
        assert_eq!(discards - discards, Discards::default());
    }
}

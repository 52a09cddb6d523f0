//! Figures of discards: pending, done, and saved by reuse.
//!
//! The names and their meanings are taken from the kernel's `/sys/fs/btrfs/FSID/discard`.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use ubtrfs_device::DiscardCounts;
use ubtrfs_fs::{DISCARD_SIZES, DiscardLimits, DiscardMode, DiscardStats, Volume};

use super::figures::shown_bytes;

/// A volume's discard settings and totals.
#[derive(Clone, Copy, Debug)]
pub struct DiscardReport {
    pub mode: DiscardMode,
    /// Whether a device supports discards, as far as is known.
    pub is_possible: bool,
    pub limits: DiscardLimits,
    pub stats: DiscardStats,
    /// Requests to devices, of all kinds.
    pub devices: DiscardCounts,
}

impl DiscardReport {
    pub fn of(volume: &Volume) -> DiscardReport {
        DiscardReport {
            mode: volume.discard_mode(),
            is_possible: volume.can_discard(),
            limits: volume.discard_limits(),
            stats: volume.discard_stats(),
            devices: volume.pool().discard_counts(),
        }
    }

    /// Formats the figures as lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let stats = &self.stats;
        let able = if self.is_possible {
            ""
        } else {
            ", and no device takes discards"
        };
        writeln!(out, "Discard:          {}{able}", self.mode.name())?;
        let waiting = shown_bytes(stats.discardable_bytes);
        writeln!(
            out,
            "  waiting:        {waiting} in {} extents",
            stats.discardable_extents
        )?;
        for (name, bytes) in [
            ("background:", self.background_bytes()),
            ("commits:", stats.sync_bytes),
            ("on request:", stats.trim_bytes),
            ("saved by reuse:", stats.discard_bytes_saved),
        ] {
            writeln!(out, "  {name:<16}{}", shown_bytes(bytes))?;
        }
        if stats.errors > 0 {
            writeln!(out, "  errors:         {}", stats.errors)?;
        }
        Ok(())
    }

    /// Formats the limits of background discards as lines for people.
    pub fn limits_text(&self) -> String {
        let limited = |limit: u64, shown: String| match limit {
            0 => "no limit".to_owned(),
            _ => shown,
        };
        let limits = &self.limits;
        let iops = match limits.iops_limit {
            0 => "by how much waits".to_owned(),
            iops => format!("{iops} a second"),
        };
        let kbps = u64::from(limits.kbps_limit);
        let kbps = limited(kbps, format!("{kbps} KiB a second"));
        let max = limited(
            limits.max_discard_size,
            shown_bytes(limits.max_discard_size),
        );
        format!(
            "Limits:\n  discards:       {iops}\n  bytes:          {kbps}\n  each discard:   {max}\n"
        )
    }

    fn background_bytes(&self) -> u64 {
        let stats = &self.stats;
        stats
            .discard_extent_bytes
            .saturating_add(stats.discard_bitmap_bytes)
    }

    pub fn json(&self) -> Value {
        let stats = &self.stats;
        let sizes = DISCARD_SIZES.map(|size| size.to_string());
        let sizes = sizes.into_iter().chain(["larger".to_owned()]);
        let by_size: Map<String, Value> = sizes.zip(stats.by_size.map(Value::from)).collect();
        json!({
            "mode": self.mode.name(),
            "possible": self.is_possible,
            "discardable_extents": stats.discardable_extents,
            "discardable_bytes": stats.discardable_bytes,
            "discard_extent_bytes": stats.discard_extent_bytes,
            "discard_bitmap_bytes": stats.discard_bitmap_bytes,
            "discard_bytes_saved": stats.discard_bytes_saved,
            "iops_limit": self.limits.iops_limit,
            "kbps_limit": self.limits.kbps_limit,
            "max_discard_size": self.limits.max_discard_size,
            "sync_bytes": stats.sync_bytes,
            "trim_bytes": stats.trim_bytes,
            "discards": stats.discards,
            "discards_by_size": by_size,
            "errors": stats.errors,
            "device_requests": self.devices.requests,
            "device_bytes": self.devices.bytes,
            "device_ns": self.devices.ns,
        })
    }

    /// Returns name, help, kind and value of each sample.
    pub(super) fn samples(&self) -> [(&'static str, &'static str, &'static str, u64); 13] {
        let stats = &self.stats;
        let gauge = "gauge";
        let counter = "counter";
        [
            (
                "discardable_extents",
                "Free extents that wait for a discard.",
                gauge,
                stats.discardable_extents,
            ),
            (
                "discardable_bytes",
                "Free bytes that wait for a discard.",
                gauge,
                stats.discardable_bytes,
            ),
            (
                "discard_extent_bytes_total",
                "Bytes discarded in the background from extents.",
                counter,
                stats.discard_extent_bytes,
            ),
            (
                "discard_bitmap_bytes_total",
                "Bytes discarded in the background from bitmaps.",
                counter,
                stats.discard_bitmap_bytes,
            ),
            (
                "discard_bytes_saved_total",
                "Bytes that were used again before they were discarded.",
                counter,
                stats.discard_bytes_saved,
            ),
            (
                "discard_sync_bytes_total",
                "Bytes discarded by commits.",
                counter,
                stats.sync_bytes,
            ),
            (
                "discard_trim_bytes_total",
                "Bytes discarded on request.",
                counter,
                stats.trim_bytes,
            ),
            (
                "discards_total",
                "Regions discarded.",
                counter,
                stats.discards,
            ),
            (
                "discard_errors_total",
                "Regions that a device failed to discard.",
                counter,
                stats.errors,
            ),
            (
                "discard_device_requests_total",
                "Discards that devices have done.",
                counter,
                self.devices.requests,
            ),
            (
                "discard_iops_limit",
                "Discards a second in the background; 0: by how much waits.",
                gauge,
                self.limits.iops_limit.into(),
            ),
            (
                "discard_kbps_limit",
                "KiB a second that the background discards; 0: no limit.",
                gauge,
                self.limits.kbps_limit.into(),
            ),
            (
                "discard_max_discard_size",
                "Bytes of a discard of the background; 0: no limit.",
                gauge,
                self.limits.max_discard_size,
            ),
        ]
    }
}

#[cfg(test)]
pub(super) fn example() -> DiscardReport {
    DiscardReport {
        mode: DiscardMode::Async,
        is_possible: true,
        limits: DiscardLimits::default(),
        stats: DiscardStats {
            discardable_extents: 3,
            discardable_bytes: 20 << 20,
            discard_extent_bytes: 5 << 20,
            discard_bitmap_bytes: 1 << 20,
            discard_bytes_saved: 7,
            sync_bytes: 0,
            trim_bytes: 9,
            discards: 2,
            by_size: [0, 0, 2, 0, 0, 0, 0],
            errors: 0,
        },
        devices: DiscardCounts {
            requests: 4,
            bytes: 6 << 20,
            ns: 1000,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_sums_and_limits() {
        let report = example();
        let text = report.text();
        for line in [
            "Discard:          async",
            "  waiting:        20.0 MiB in 3 extents",
            "  background:     6144.0 KiB",
            "  saved by reuse: 7 B",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
        assert!(!text.contains("errors"));
        let limits = report.limits_text();
        assert!(
            limits.contains("  discards:       1000 a second\n"),
            "{limits}"
        );
        assert!(limits.contains("  bytes:          no limit\n"), "{limits}");
        assert!(limits.contains("  each discard:   64.0 MiB\n"), "{limits}");
    }

    #[test]
    fn json_has_the_names_of_the_kernel() {
        let json = example().json();
        assert_eq!(json["discardable_bytes"], 20 << 20);
        assert_eq!(json["discard_bitmap_bytes"], 1 << 20);
        assert_eq!(json["iops_limit"], 1000);
        assert_eq!(json["discards_by_size"]["1048576"], 2);
        assert_eq!(json["device_requests"], 4);
    }
}

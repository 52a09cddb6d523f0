//! A report as text for people, as JSON, and in the text format of Prometheus.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use ubtrfs_fs::{FullCommitReason, Waits, WriterStats};

use super::figures::{share, shown, shown_bytes, shown_ns};
use super::report::{Report, phases};

impl Report {
    /// Formats the report as lines for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "Mounted for:      {}", shown(self.uptime))?;
        if let Some(reason) = &self.aborted {
            writeln!(out, "Aborted:          {reason}")?;
        }
        writeln!(out, "Requests:         {}", self.total())?;
        writeln!(out, "  handed over:    {}", self.handed_over)?;
        writeln!(out, "Bytes read:       {}", shown_bytes(self.bytes_read))?;
        writeln!(out, "Bytes written:    {}", shown_bytes(self.bytes_written))?;
        writeln!(
            out,
            "\n{:<16}{:>12}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}",
            "Request", "count", "errors", "mean", "p50", "p99", "p99.99", "max"
        )?;
        for operation in self.in_use() {
            let durations = &operation.durations;
            writeln!(
                out,
                "{:<16}{:>12}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}",
                operation.verb.name(),
                durations.count(),
                operation.errors,
                shown_ns(durations.mean_ns()),
                shown_ns(durations.quantile_ns(0.5)),
                shown_ns(durations.quantile_ns(0.99)),
                shown_ns(durations.quantile_ns(0.9999)),
                shown_ns(durations.max_ns()),
            )?;
        }
        if let Some(writer) = &self.writer {
            writeln!(out, "\nCommits:          {}", writer.commits)?;
            for (name, spent) in phases(writer) {
                let mean = spent
                    .checked_div(u32::try_from(writer.commits).unwrap_or(u32::MAX))
                    .unwrap_or_default();
                writeln!(out, "  {name:<16}{:>12} each", shown(mean))?;
            }
            let (delta, buffer) = (writer.delta_waits, writer.buffer_waits);
            for (room, waits) in [("delta: ", delta), ("buffer:", buffer)] {
                let together = shown_ns(waits.ns);
                writeln!(out, "Waits for {room} {}, {together} together", waits.count)?;
            }
            writeln!(out, "Data to devices:  {}", shown_bytes(writer.data_bytes))?;
            writeln!(out, "Trees to devices: {}", shown_bytes(writer.node_bytes))?;
            writeln!(
                out,
                "All to devices:   {}",
                shown_bytes(writer.device_bytes)
            )?;
            writeln!(
                out,
                "Logs of fsync:    {}, {}",
                writer.logs,
                shown_bytes(writer.log_bytes)
            )?;
            for (reason, count) in full_commits(writer).filter(|(_, count)| *count > 0) {
                writeln!(out, "  commits instead: {count}, {reason}")?;
            }
            writeln!(out, "Flushes alone:    {}", writer.data_flushes)?;
        }
        if let Some(discard) = &self.discard {
            out.push_str(&discard.text());
        }
        let (nodes, extents) = (&self.nodes, &self.extents);
        writeln!(
            out,
            "\nTree block cache: {} hits, {} misses ({}), {} read ahead",
            nodes.hits,
            nodes.misses,
            share(nodes.hits, nodes.misses),
            nodes.read_ahead
        )?;
        writeln!(
            out,
            "Extent cache:     {} hits, {} misses ({})",
            extents.hits,
            extents.misses,
            share(extents.hits, extents.misses)
        )?;
        writeln!(
            out,
            "Read errors:      {}, not recovered {}",
            self.read_errors, self.unrecovered
        )?;
        writeln!(out, "Repaired mirrors: {}", self.repaired_mirrors)
    }

    /// Returns the report as one JSON object, with durations in nanoseconds.
    pub fn json(&self) -> Value {
        let operations: Map<String, Value> = self
            .in_use()
            .map(|operation| {
                let durations = &operation.durations;
                let value = json!({
                    "count": durations.count(),
                    "errors": operation.errors,
                    "sum_ns": durations.sum_ns,
                    "mean_ns": durations.mean_ns(),
                    "p50_ns": durations.quantile_ns(0.5),
                    "p90_ns": durations.quantile_ns(0.9),
                    "p99_ns": durations.quantile_ns(0.99),
                    "p9999_ns": durations.quantile_ns(0.9999),
                    "max_ns": durations.max_ns(),
                });
                (operation.verb.name().to_owned(), value)
            })
            .collect();
        let writer = self.writer.map(|writer| {
            let phases: Map<String, Value> = phases(&writer)
                .into_iter()
                .map(|(name, spent)| (format!("{name}_ns"), (spent.as_nanos() as u64).into()))
                .collect();
            let waits = |waits: Waits| json!({ "count": waits.count, "ns": waits.ns });
            json!({
                "commits": writer.commits,
                "phases": phases,
                "waits": {
                    "delta": waits(writer.delta_waits),
                    "buffer": waits(writer.buffer_waits),
                },
                "data_bytes": writer.data_bytes,
                "node_bytes": writer.node_bytes,
                "device_bytes": writer.device_bytes,
                "logs": writer.logs,
                "data_flushes": writer.data_flushes,
                "log_bytes": writer.log_bytes,
                "unlogged": full_commits(&writer)
                    .map(|(reason, count)| (reason.to_owned(), count.into()))
                    .collect::<Map<String, Value>>(),
            })
        });
        json!({
            "uptime_ns": self.uptime.as_nanos() as u64,
            "aborted": self.aborted.as_ref().map(|reason| reason.as_str()),
            "requests": operations,
            "handed_over": self.handed_over,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "writer": writer,
            "discard": self.discard.map(|discard| discard.json()),
            "node_cache": {
                "hits": self.nodes.hits,
                "misses": self.nodes.misses,
                "read_ahead": self.nodes.read_ahead,
            },
            "extent_cache": { "hits": self.extents.hits, "misses": self.extents.misses },
            "read_errors": self.read_errors,
            "unrecovered": self.unrecovered,
            "repaired_mirrors": self.repaired_mirrors,
        })
    }

    /// Formats the report in the text format of Prometheus. `mountpoint` becomes a label of every sample.
    pub fn prometheus(&self, mountpoint: &str) -> String {
        let mut out = String::new();
        let place = format!("mountpoint=\"{}\"", escaped(mountpoint));
        // Writing to a String cannot fail.
        let _ = self.write_histograms(&mut out, &place);
        for (name, help, value) in self.counters() {
            let _ = write!(
                out,
                "# HELP ubtrfs_{name} {help}\n# TYPE ubtrfs_{name} counter\nubtrfs_{name}{{{place}}} {value}\n"
            );
        }
        let samples = self.discard.iter().flat_map(|discard| discard.samples());
        for (name, help, kind, value) in samples {
            let _ = write!(
                out,
                "# HELP ubtrfs_{name} {help}\n# TYPE ubtrfs_{name} {kind}\nubtrfs_{name}{{{place}}} {value}\n"
            );
        }
        if let Some(writer) = &self.writer {
            let name = "aborted";
            let aborted = u8::from(self.aborted.is_some());
            let _ = write!(
                out,
                "# HELP ubtrfs_{name} 1 if a transaction failed, so that changes are refused.\n\
                 # TYPE ubtrfs_{name} gauge\nubtrfs_{name}{{{place}}} {aborted}\n"
            );
            let name = "commit_phase_seconds_total";
            let _ = write!(
                out,
                "# HELP ubtrfs_{name} Time spent in the phases of commits.\n# TYPE ubtrfs_{name} counter\n"
            );
            for (phase, spent) in phases(writer) {
                let seconds = spent.as_secs_f64();
                let _ = writeln!(out, "ubtrfs_{name}{{{place},phase=\"{phase}\"}} {seconds}");
            }
        }
        out
    }

    fn write_histograms(&self, out: &mut String, place: &str) -> std::fmt::Result {
        let name = "ubtrfs_request_seconds";
        writeln!(out, "# HELP {name} How long requests took.")?;
        writeln!(out, "# TYPE {name} histogram")?;
        for operation in self.in_use() {
            let labels = format!("{place},request=\"{}\"", operation.verb.name());
            let durations = &operation.durations;
            for (upper_ns, count) in durations.cumulative() {
                let seconds = upper_ns as f64 / 1e9;
                writeln!(out, "{name}_bucket{{{labels},le=\"{seconds}\"}} {count}")?;
            }
            let count = durations.count();
            writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
            let seconds = durations.sum_ns as f64 / 1e9;
            writeln!(out, "{name}_sum{{{labels}}} {seconds}")?;
            writeln!(out, "{name}_count{{{labels}}} {count}")?;
        }
        let name = "ubtrfs_request_errors_total";
        writeln!(out, "# HELP {name} Requests answered with an error.")?;
        writeln!(out, "# TYPE {name} counter")?;
        for operation in self.in_use() {
            let verb = operation.verb.name();
            writeln!(
                out,
                "{name}{{{place},request=\"{verb}\"}} {}",
                operation.errors
            )?;
        }
        Ok(())
    }

    /// Returns name, help and value of each counter.
    fn counters(&self) -> Vec<(&'static str, &'static str, f64)> {
        let mut counters = vec![
            (
                "read_bytes_total",
                "Bytes that readers got.",
                self.bytes_read as f64,
            ),
            (
                "written_bytes_total",
                "Bytes that writers gave.",
                self.bytes_written as f64,
            ),
            (
                "requests_handed_over_total",
                "Requests that were made again where they may wait.",
                self.handed_over as f64,
            ),
            (
                "node_cache_hits_total",
                "Tree blocks found in memory.",
                self.nodes.hits as f64,
            ),
            (
                "node_cache_misses_total",
                "Tree blocks read.",
                self.nodes.misses as f64,
            ),
            (
                "node_cache_read_ahead_total",
                "Tree blocks read ahead.",
                self.nodes.read_ahead as f64,
            ),
            (
                "extent_cache_hits_total",
                "Decompressed extents found in memory.",
                self.extents.hits as f64,
            ),
            (
                "extent_cache_misses_total",
                "Extents decompressed.",
                self.extents.misses as f64,
            ),
            (
                "read_errors_total",
                "Tries to read that failed.",
                self.read_errors as f64,
            ),
            (
                "unrecovered_total",
                "Ranges that no mirror could give.",
                self.unrecovered as f64,
            ),
            (
                "repaired_mirrors_total",
                "Damaged mirrors rewritten by reads.",
                self.repaired_mirrors as f64,
            ),
        ];
        if let Some(writer) = &self.writer {
            counters.extend([
                (
                    "commits_total",
                    "Transactions committed.",
                    writer.commits as f64,
                ),
                (
                    "delta_waits_total",
                    "Operations that waited for room for their changes in memory.",
                    writer.delta_waits.count as f64,
                ),
                (
                    "delta_wait_seconds_total",
                    "How long those waited.",
                    Duration::from_nanos(writer.delta_waits.ns).as_secs_f64(),
                ),
                (
                    "buffer_waits_total",
                    "Writers that wrote data back for room for theirs in memory.",
                    writer.buffer_waits.count as f64,
                ),
                (
                    "buffer_wait_seconds_total",
                    "How long that took them.",
                    Duration::from_nanos(writer.buffer_waits.ns).as_secs_f64(),
                ),
                (
                    "data_bytes_total",
                    "Bytes of data written to devices.",
                    writer.data_bytes as f64,
                ),
                (
                    "node_bytes_total",
                    "Bytes of tree blocks written.",
                    writer.node_bytes as f64,
                ),
                (
                    "device_bytes_total",
                    "Bytes written to devices: all copies, superblocks, zeros in holes of images.",
                    writer.device_bytes as f64,
                ),
                (
                    "logs_total",
                    "Logs written for fsync in place of commits.",
                    writer.logs as f64,
                ),
                (
                    "data_flushes_total",
                    "Flushes of data written in place, with nothing to log or to commit.",
                    writer.data_flushes as f64,
                ),
                (
                    "log_bytes_total",
                    "Bytes of log blocks written.",
                    writer.log_bytes as f64,
                ),
                (
                    "unlogged_total",
                    "Commits for fsync in place of logs.",
                    writer.full_commits.iter().sum::<u64>() as f64,
                ),
            ]);
        }
        counters
    }
}

/// Returns the number of commits in place of logs, by reason.
fn full_commits(writer: &WriterStats) -> impl Iterator<Item = (&'static str, u64)> {
    let reasons = FullCommitReason::ALL.map(FullCommitReason::name);
    reasons.into_iter().zip(writer.full_commits)
}

/// Escapes a text for the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ubtrfs_fs::{CacheStats, StoreStats};

    use super::*;
    use crate::stats::discard;
    use crate::stats::histogram::{Durations, Histogram};
    use crate::stats::{Operation, Verb};

    fn report() -> Report {
        let histogram = Arc::new(Histogram::new());
        for ns in [900, 3_000, 3_100, 40_000_000] {
            histogram.add(ns);
        }
        let mut durations = Durations::default();
        durations.take_in(&histogram);
        Report {
            uptime: Duration::from_secs(90),
            operations: vec![
                Operation {
                    verb: Verb::Create,
                    errors: 1,
                    durations,
                },
                Operation {
                    verb: Verb::Link,
                    errors: 0,
                    durations: Durations::default(),
                },
            ],
            bytes_read: 5,
            bytes_written: 20 << 20,
            handed_over: 2,
            aborted: None,
            writer: Some(WriterStats {
                commits: 4,
                delta_waits: Waits {
                    count: 3,
                    ns: 1_500_000,
                },
                buffer_waits: Waits {
                    count: 7,
                    ns: 500_000_000,
                },
                data_flushes: 12,
                ..WriterStats::default()
            }),
            discard: Some(discard::example()),
            nodes: StoreStats {
                hits: 3,
                misses: 1,
                read_ahead: 0,
            },
            extents: CacheStats::default(),
            read_errors: 6,
            unrecovered: 1,
            repaired_mirrors: 5,
        }
    }

    #[test]
    fn people_read_what_was_asked_for_only() {
        let text = report().text();
        assert!(text.contains("Bytes written:    20.0 MiB\n"), "{text}");
        assert!(text.contains("3 hits, 1 misses (75.0 %)"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("create ")));
        assert!(!text.contains("link"));
        for line in [
            "Waits for delta:  3, 1500.0 us together",
            "Waits for buffer: 7, 500.0 ms together",
            "Flushes alone:    12",
            "Read errors:      6, not recovered 1",
            "Repaired mirrors: 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }

    #[test]
    fn json_has_the_numbers() {
        let json = report().json();
        let create = &json["requests"]["create"];
        assert_eq!(create["count"], 4);
        assert_eq!(create["errors"], 1);
        assert_eq!(create["sum_ns"], 40_007_000);
        assert_eq!(json["writer"]["commits"], 4);
        let waits = &json["writer"]["waits"];
        assert_eq!(waits["delta"], json!({ "count": 3, "ns": 1_500_000 }));
        assert_eq!(waits["buffer"], json!({ "count": 7, "ns": 500_000_000 }));
        assert_eq!(json["node_cache"]["hits"], 3);
        assert_eq!(json["repaired_mirrors"], 5);
        assert!(json["requests"].get("link").is_none());
    }

    #[test]
    fn prometheus_gets_buckets_that_add_up() {
        let text = report().prometheus("/mnt/a \"b\"");
        let place = r#"mountpoint="/mnt/a \"b\"""#;
        for line in [
            format!(
                r#"ubtrfs_request_seconds_bucket{{{place},request="create",le="0.000001024"}} 1"#
            ),
            format!(
                r#"ubtrfs_request_seconds_bucket{{{place},request="create",le="0.000004096"}} 3"#
            ),
            format!(r#"ubtrfs_request_seconds_bucket{{{place},request="create",le="+Inf"}} 4"#),
            format!(r#"ubtrfs_request_seconds_count{{{place},request="create"}} 4"#),
            format!(r#"ubtrfs_request_errors_total{{{place},request="create"}} 1"#),
            format!("ubtrfs_commits_total{{{place}}} 4"),
            format!("ubtrfs_delta_waits_total{{{place}}} 3"),
            format!("ubtrfs_delta_wait_seconds_total{{{place}}} 0.0015"),
            format!("ubtrfs_buffer_waits_total{{{place}}} 7"),
            format!("ubtrfs_buffer_wait_seconds_total{{{place}}} 0.5"),
            format!("ubtrfs_repaired_mirrors_total{{{place}}} 5"),
            format!("ubtrfs_discardable_bytes{{{place}}} 20971520"),
            format!("ubtrfs_discard_bytes_saved_total{{{place}}} 7"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let shapes = text.lines().all(|line| {
            line.starts_with("# ")
                || line
                    .rsplit_once(' ')
                    .is_some_and(|(_, value)| value.parse::<f64>().is_ok())
        });
        assert!(shapes, "{text}");
    }
}

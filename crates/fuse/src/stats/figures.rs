//! Durations, bytes and shares as text for people.

use std::time::Duration;

/// Renders a duration in seconds, milliseconds or microseconds.
pub(super) fn shown(duration: Duration) -> String {
    match duration.as_nanos() {
        0..10_000_000 => format!("{:.1} us", duration.as_secs_f64() * 1e6),
        10_000_000..10_000_000_000 => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

pub(super) fn shown_ns(ns: u64) -> String {
    shown(Duration::from_nanos(ns))
}

pub(super) fn shown_bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        10_485_760..10_737_418_240 => format!("{:.1} MiB", bytes as f64 / 1048576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1073741824.0),
    }
}

pub(super) fn share(hits: u64, misses: u64) -> String {
    match hits + misses {
        0 => "-".to_owned(),
        all => format!("{:.1} %", hits as f64 * 100.0 / all as f64),
    }
}

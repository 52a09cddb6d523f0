//! Times of files in the local time zone, in the layouts of ls(1), stat(1) and btrfs-progs.
//!
//! A damaged inode may hold any number; one outside the calendar is shown as @SECONDS.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use ubtrfs_engine::FileTime;

/// ls(1) shows the hour of times up to this old, and the year of older ones.
const RECENT: SignedDuration = SignedDuration::from_secs(31_556_952 / 2);

fn local(time: FileTime) -> Option<Zoned> {
    let timestamp = Timestamp::new(time.sec, i32::try_from(time.nsec).ok()?).ok()?;
    Some(timestamp.to_zoned(TimeZone::system()))
}

fn strftime(time: FileTime, format: &str) -> String {
    match local(time) {
        Some(zoned) => zoned.strftime(format).to_string(),
        None => format!("@{}", time.sec),
    }
}

/// "Nov 21 20:24", or with the year instead of the hour.
pub(crate) fn short(time: FileTime, now: Timestamp) -> String {
    let recent = Timestamp::new(time.sec, 0).is_ok_and(|then| {
        let age = now.duration_since(then);
        age >= SignedDuration::ZERO && age < RECENT
    });
    strftime(time, if recent { "%b %e %H:%M" } else { "%b %e  %Y" })
}

/// "2026-11-21 20:24:10.111414786 +0000"
pub(crate) fn full(time: FileTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S.%9f %z")
}

/// "2026-11-21 20:24:10 +0000"
pub(crate) fn with_zone(time: FileTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S %z")
}

/// "2026-11-21 20:24:10"
pub(crate) fn plain(time: FileTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S")
}

/// RFC 3339 in UTC with nanoseconds, for JSON.
pub(crate) fn rfc3339(time: FileTime) -> String {
    let timestamp = i32::try_from(time.nsec)
        .ok()
        .and_then(|nsec| Timestamp::new(time.sec, nsec).ok());
    match timestamp {
        Some(timestamp) => format!("{timestamp:.9}"),
        None => format!("@{}", time.sec),
    }
}

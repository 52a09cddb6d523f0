//! Times of files in the local time zone, in the layouts of ls(1), stat(1) and btrfs-progs.
//!
//! A damaged inode may contain any time. One outside the calendar is displayed as @SECONDS.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use ubtrfs_format::item::FileTime;

/// ls(1) displays the hour of times up to this age, and the year of older ones.
const RECENT: SignedDuration = SignedDuration::from_secs(31_556_952 / 2);

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    // The calendar ends with the year 9999.
    Timestamp::try_from(SystemTime::from(FileTime::now())).unwrap_or(Timestamp::MAX)
}

fn local(time: SystemTime) -> Option<Zoned> {
    let timestamp = Timestamp::try_from(time).ok()?;
    let zone = ZONE.with_borrow(Clone::clone);
    Some(timestamp.to_zoned(zone.unwrap_or_else(TimeZone::system)))
}

thread_local! {
    /// The local time zone of the client that this thread works for. None: the zone of this process.
    static ZONE: RefCell<Option<TimeZone>> = const { RefCell::new(None) };
}

/// Displays times on this thread in the zone of another process, which it named with [`zone_name`].
pub(crate) fn use_zone(name: &str) {
    let zone = TimeZone::get(name).or_else(|_| TimeZone::posix(name));
    ZONE.set(zone.ok());
}

/// Returns the name of the local time zone, or an empty string if it has none.
pub(crate) fn zone_name() -> String {
    match TimeZone::system().iana_name() {
        Some(name) => name.to_owned(),
        None => std::env::var("TZ").unwrap_or_default(),
    }
}

fn strftime(time: SystemTime, format: &str) -> String {
    match local(time) {
        Some(zoned) => zoned.strftime(format).to_string(),
        None => format!("@{}", seconds(time)),
    }
}

/// Returns whole seconds since 1970, rounded down.
fn seconds(time: SystemTime) -> i64 {
    FileTime::from(time).sec
}

/// Formats a time as "Nov 21 20:24", or with the year instead of the hour.
pub(crate) fn short(time: SystemTime, now: Timestamp) -> String {
    let recent = Timestamp::new(seconds(time), 0).is_ok_and(|then| {
        let age = now.duration_since(then);
        age >= SignedDuration::ZERO && age < RECENT
    });
    strftime(time, if recent { "%b %e %H:%M" } else { "%b %e  %Y" })
}

/// Formats a time as "21.Nov 20:24:10".
pub(crate) fn day_and_time(time: SystemTime) -> String {
    strftime(time, "%d.%b %H:%M:%S")
}

/// Formats a time as "2026-11-21 20:24:10.111414786 +0000".
pub(crate) fn full(time: SystemTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S.%9f %z")
}

/// Formats a time as "2026-11-21 20:24:10 +0000".
pub(crate) fn with_zone(time: SystemTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S %z")
}

/// Formats a time as "2026-11-21 20:24:10".
pub(crate) fn plain(time: SystemTime) -> String {
    strftime(time, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time like ctime(3), as "Sun Nov 29 02:06:46 2026".
pub(crate) fn ctime(time: SystemTime) -> String {
    strftime(time, "%a %b %e %H:%M:%S %Y")
}

/// Formats a time by RFC 3339 in UTC with nanoseconds, for JSON.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(timestamp) => format!("{timestamp:.9}"),
        Err(_) => format!("@{}", seconds(time)),
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid date: '{0}' (as 2026-11-21, 2026-11-21 20:24:10.5, 2026-11-21T20:24:10Z, @SECONDS or now)"
)]
pub(crate) struct InvalidTime(String);

/// Parses a date, with or without time and zone, the seconds since 1970 after '@', or "now".
pub(crate) fn parse(text: &str) -> Result<SystemTime, InvalidTime> {
    let text = text.trim();
    if text == "now" {
        return Ok(now().into());
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds_since_1970(seconds).ok_or_else(|| InvalidTime(text.to_owned()));
    }
    let local = |time: DateTime| {
        let zoned = time.to_zoned(TimeZone::system()).ok()?;
        Some(zoned.timestamp())
    };
    let zoned = || Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", text);
    let timestamp = text.parse::<Timestamp>().or_else(|_| zoned()).ok();
    let time = || text.parse::<DateTime>().ok().and_then(local);
    let date = || local(text.parse::<Date>().ok()?.to_datetime(Default::default()));
    timestamp
        .or_else(time)
        .or_else(date)
        .map(SystemTime::from)
        .ok_or_else(|| InvalidTime(text.to_owned()))
}

/// Parses [[CC]YY]MMDDhhmm[.ss], as in touch -t.
pub(crate) fn parse_stamp(text: &str) -> Result<SystemTime, InvalidTime> {
    let invalid = || InvalidTime(text.to_owned());
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    if seconds.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid());
    }
    let number = |text: &str| text.parse::<i16>().map_err(|_| invalid());
    let (year, rest) = match digits.len() {
        8 => (now().to_zoned(TimeZone::system()).year(), digits),
        10 => {
            let year = number(&digits[..2])?;
            (year + if year < 69 { 2000 } else { 1900 }, &digits[2..])
        }
        12 => (number(&digits[..4])?, &digits[4..]),
        _ => return Err(invalid()),
    };
    let part = |at: usize| number(&rest[at..at + 2]).map(|part| part as i8);
    let seconds = number(seconds)?.min(59) as i8;
    let time = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, seconds, 0);
    let zoned = time.and_then(|time| time.to_zoned(TimeZone::system()));
    Ok(zoned.map_err(|_| invalid())?.timestamp().into())
}

fn seconds_since_1970(text: &str) -> Option<SystemTime> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let sec: i64 = seconds.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = Duration::from_nanos(format!("{fraction:0<9}").parse().ok()?);
    let whole = Duration::from_secs(sec.unsigned_abs());
    if seconds.starts_with('-') {
        UNIX_EPOCH.checked_sub(whole)?.checked_sub(nanoseconds)
    } else {
        UNIX_EPOCH.checked_add(whole)?.checked_add(nanoseconds)
    }
}

#[cfg(test)]
mod tests;

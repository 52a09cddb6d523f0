//! Times: seconds and nanoseconds as stored, and the local time.
//!
//! A damaged inode may contain any time, so the calendar extends beyond the years of the time zone data.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ubtrfs_format::item::Timespec;

/// "2026-11-21 20:24:10" in a time zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTime<'a>(pub(super) i64, pub(super) &'a TimeZone);

impl fmt::Display for LocalTime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LocalTime(seconds, zone) = *self;
        let offset = offset_at(seconds, zone);
        write_civil(f, seconds.saturating_add(offset), ' ')
    }
}

/// "2026-11-21T20:24:10+0000" in a time zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsoTime<'a>(pub(crate) i64, pub(crate) &'a TimeZone);

impl fmt::Display for IsoTime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IsoTime(seconds, zone) = *self;
        let offset = offset_at(seconds, zone);
        write_civil(f, seconds.saturating_add(offset), 'T')?;
        let sign = if offset < 0 { '-' } else { '+' };
        let minutes = offset.abs() / 60;
        write!(f, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
    }
}

/// Returns the offset of the time zone from UTC in seconds.
fn offset_at(seconds: i64, zone: &TimeZone) -> i64 {
    i64::from(zone.to_offset(within_reach(seconds)).seconds())
}

const DAY: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01, and of 400 years.
const EPOCH_FROM_MARCH: i64 = 719_468;
const ERA: i64 = 146_097;

/// Returns a time with the same offset within the years of the time zone data. Rules for the future repeat
/// with the calendar, and before the first rule the offset is constant.
fn within_reach(seconds: i64) -> Timestamp {
    let cycle = ERA * DAY;
    let reachable = match seconds {
        _ if seconds > 2 * cycle => cycle + seconds % cycle,
        _ => seconds,
    };
    Timestamp::from_second(reachable).unwrap_or(Timestamp::MIN)
}

fn write_civil(f: &mut fmt::Formatter<'_>, seconds: i64, between: char) -> fmt::Result {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(
        f,
        "{year}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}"
    )
}

/// Returns year, month and day in the proleptic Gregorian calendar. Years begin in March, so that the leap
/// day is last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_FROM_MARCH;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// "1795293024.19400437 (2026-11-21 20:30:24)". Seconds before 1970 are displayed as huge numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp<'a>(pub(super) &'a Timespec, pub(super) &'a TimeZone);

impl fmt::Display for Stamp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.sec.get();
        let nanoseconds = self.0.nsec.get();
        write!(
            f,
            "{}.{nanoseconds} ({})",
            seconds as u64,
            LocalTime(seconds, self.1)
        )
    }
}

//! `ubtrfs truncate`: shortens or extends files.

use std::str::FromStr;

use anyhow::Context;
use ubtrfs::OpenOptions;

use crate::presentation::console::Console;
use crate::volume_access::changes::{Changes, Target};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Cut or lengthen files, and make those that do not exist
///
/// New bytes read as zeros and take no space.
#[derive(Debug, clap::Args)]
pub(crate) struct Truncate {
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    locations: Vec<Location>,
    /// The new size, with K, M, G, ... for powers of 1024, or KB, MB, ... for powers of 1000.
    /// After + or - it is a difference, after < at most, after > at least. After / or % sizes are rounded down or up to
    /// a multiple of it
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    size: NewSize,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NewSize {
    Exactly(u64),
    More(u64),
    Less(u64),
    AtMost(u64),
    AtLeast(u64),
    RoundedDown(u64),
    RoundedUp(u64),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid size: '{0}'")]
struct InvalidSize(String);

impl NewSize {
    /// Returns the new size for a file of this size, or None if it exceeds the limit.
    fn of(self, size: u64) -> Option<u64> {
        match self {
            NewSize::Exactly(size) => Some(size),
            NewSize::More(bytes) => size.checked_add(bytes),
            NewSize::Less(bytes) => Some(size.saturating_sub(bytes)),
            NewSize::AtMost(bytes) => Some(size.min(bytes)),
            NewSize::AtLeast(bytes) => Some(size.max(bytes)),
            NewSize::RoundedDown(unit) => Some(size - size % unit),
            NewSize::RoundedUp(unit) => size.checked_next_multiple_of(unit),
        }
    }
}

impl FromStr for NewSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<NewSize, InvalidSize> {
        let invalid = || InvalidSize(text.to_owned());
        let of: fn(u64) -> NewSize = match text.bytes().next() {
            Some(b'+') => NewSize::More,
            Some(b'-') => NewSize::Less,
            Some(b'<') => NewSize::AtMost,
            Some(b'>') => NewSize::AtLeast,
            Some(b'/') => NewSize::RoundedDown,
            Some(b'%') => NewSize::RoundedUp,
            _ => NewSize::Exactly,
        };
        let number = text
            .strip_prefix(['+', '-', '<', '>', '/', '%'])
            .unwrap_or(text);
        let bytes = bytes(number).ok_or_else(invalid)?;
        match of(bytes) {
            NewSize::RoundedDown(0) | NewSize::RoundedUp(0) => Err(invalid()),
            size => Ok(size),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(digits);
    let number: u64 = digits.parse().ok()?;
    let (letter, base) = match suffix.strip_suffix('B') {
        Some(letter) if letter.ends_with('i') => (&letter[..letter.len() - 1], 1024u64),
        Some(letter) => (letter, 1000),
        None => (suffix, 1024),
    };
    let power = match letter {
        "" if suffix.is_empty() => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return None,
    };
    number.checked_mul(base.pow(power))
}

impl Truncate {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        Changes::each(
            &self.volume,
            &self.locations,
            console,
            |target, location, _| {
                self.set_size(target, location)
                    .with_context(|| format!("cannot set the size of '{location}'"))
            },
        )
    }

    fn set_size(&self, target: &Target, location: &Location) -> anyhow::Result<()> {
        let existing = OpenOptions::new().write(true);
        let opened = target.files.open_with(location.path_within(), &existing);
        let file = match opened.reason() {
            Err(error) if error.is_missing() && self.no_create => return Ok(()),
            Err(error) if error.is_missing() => target.make_file(location)?,
            opened => opened?,
        };
        let size = self.size.of(file.metadata().reason()?.len());
        let size = size.context("the file would be too large")?;
        Ok(file.set_len(size).reason()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_truncate() {
        for (text, old, new) in [
            ("0", 5, 0),
            ("4K", 5, 4096),
            ("4KB", 5, 4000),
            ("4KiB", 5, 4096),
            ("+1M", 5, (1 << 20) + 5),
            ("-3", 5, 2),
            ("-9", 5, 0),
            ("<3", 5, 3),
            (">3", 5, 5),
            ("/4", 5, 4),
            ("%4", 5, 8),
        ] {
            let size: NewSize = text.parse().unwrap();
            assert_eq!(size.of(old), Some(new), "{text}");
        }
        for text in [
            "", "K", "B", "1KK", "1iB", "/0", "%0", "++1", "1.5K", "99E9", "é",
        ] {
            assert!(text.parse::<NewSize>().is_err(), "{text}");
        }
    }
}

//! Values of options as text, for programs that have an option's name and value as strings.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use ubtrfs_storage::discard::DiscardMode;

use super::mount_word::bytes;
use crate::inode::Compress;

/// The type of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// A number of bytes, with an optional suffix.
    Bytes,
    /// A number of seconds, or `never`.
    Interval,
    /// An algorithm with an optional level.
    Compression,
    /// `true` for the default mode, `false` for none, or the name of a mode.
    Discard,
    /// A path. Each value is added to the earlier ones.
    Paths,
    /// Any text.
    Text,
}

impl OptionKind {
    /// Returns the accepted texts, as documentation and errors show them.
    pub fn syntax(self) -> &'static str {
        match self {
            OptionKind::Flag => "true or false",
            OptionKind::Bytes => "a number of bytes, such as 64m",
            OptionKind::Interval => "a number of seconds, or never",
            OptionKind::Compression => "none, lzo, zlib[:1-9] or zstd[:1-15]",
            OptionKind::Discard => "true, false, sync or async",
            OptionKind::Paths => "a path, added to earlier ones",
            OptionKind::Text => "a text",
        }
    }
}

/// A type of values that can be set from text.
pub(super) trait OptionValue {
    const KIND: OptionKind;

    /// Sets the value. Returns `None`, and changes nothing, if the text is not valid.
    fn set_text(&mut self, text: &OsStr) -> Option<()>;

    /// Returns a text that sets this value, or a description if no text sets it.
    fn text(&self) -> String;
}

/// Returns the type of an option from a function that finds its value.
pub(super) const fn kind_of<T, V: OptionValue>(_: fn(&T) -> &V) -> OptionKind {
    V::KIND
}

impl OptionValue for bool {
    const KIND: OptionKind = OptionKind::Flag;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = text.to_str()?.parse().ok()?;
        Some(())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for u64 {
    const KIND: OptionKind = OptionKind::Bytes;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = bytes(text.to_str()?)?;
        Some(())
    }

    /// Uses the largest suffix that divides the number.
    fn text(&self) -> String {
        let suffixes = [(30, "g"), (20, "m"), (10, "k")];
        let divides = |shift: &u32| *self != 0 && self.trailing_zeros() >= *shift;
        match suffixes.iter().find(|(shift, _)| divides(shift)) {
            Some((shift, suffix)) => format!("{}{suffix}", self >> shift),
            None => self.to_string(),
        }
    }
}

impl OptionValue for Option<u64> {
    const KIND: OptionKind = OptionKind::Bytes;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = Some(bytes(text.to_str()?)?);
        Some(())
    }

    fn text(&self) -> String {
        self.map_or_else(|| "no limit".into(), |bytes| bytes.text())
    }
}

impl OptionValue for Option<Duration> {
    const KIND: OptionKind = OptionKind::Interval;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = match text.to_str()? {
            "never" => None,
            text => {
                let interval = Duration::try_from_secs_f64(text.parse().ok()?).ok()?;
                if interval.is_zero() || interval > MAX_INTERVAL {
                    return None;
                }
                Some(interval)
            }
        };
        Some(())
    }

    fn text(&self) -> String {
        self.map_or_else(
            || "never".into(),
            |interval| interval.as_secs_f64().to_string(),
        )
    }
}

impl OptionValue for Option<String> {
    const KIND: OptionKind = OptionKind::Text;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = Some(text.to_str()?.to_owned());
        Some(())
    }

    fn text(&self) -> String {
        self.clone().unwrap_or_else(|| "none".into())
    }
}

impl OptionValue for Compress {
    const KIND: OptionKind = OptionKind::Compression;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = text.to_str()?.parse().ok()?;
        Some(())
    }

    fn text(&self) -> String {
        let name = self.algorithm.name();
        match self.level {
            0 => name.into(),
            level => format!("{name}:{level}"),
        }
    }
}

impl OptionValue for Option<DiscardMode> {
    const KIND: OptionKind = OptionKind::Discard;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        *self = match text.to_str()? {
            "true" => None,
            "false" => Some(DiscardMode::None),
            "sync" => Some(DiscardMode::Sync),
            "async" => Some(DiscardMode::Async),
            _ => return None,
        };
        Some(())
    }

    fn text(&self) -> String {
        match self {
            None => "true",
            Some(DiscardMode::None) => "false",
            Some(DiscardMode::Sync) => "sync",
            Some(DiscardMode::Async) => "async",
        }
        .into()
    }
}

impl OptionValue for Vec<PathBuf> {
    const KIND: OptionKind = OptionKind::Paths;

    fn set_text(&mut self, text: &OsStr) -> Option<()> {
        if text.is_empty() {
            return None;
        }
        self.push(text.into());
        Some(())
    }

    fn text(&self) -> String {
        let paths = self.iter().map(|path| path.display().to_string());
        if self.is_empty() {
            "no path".into()
        } else {
            paths.collect::<Vec<_>>().join(", ")
        }
    }
}

/// A longer interval overflows clocks: it is more than a century.
const MAX_INTERVAL: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: OptionValue>(mut value: T, text: &str) -> Option<String> {
        value.set_text(OsStr::new(text))?;
        Some(value.text())
    }

    #[test]
    fn text_of_a_value_sets_the_value() {
        let thirty = Some(Duration::from_secs(30));
        for (read, texts) in [
            (
                (|text| read(false, text)) as fn(&str) -> _,
                &["true", "false"][..],
            ),
            (|text| read(0, text), &["0", "1000", "3k", "64m", "5g"]),
            (|text| read(None::<u64>, text), &["64m"]),
            (|text| read(None::<Duration>, text), &["never", "5", "0.25"]),
            (
                |text| read(Compress::default(), text),
                &["none", "lzo", "zlib", "zstd:15"],
            ),
            (
                |text| read(None::<DiscardMode>, text),
                &["true", "false", "sync", "async"],
            ),
        ] {
            for text in texts {
                assert_eq!(read(text).as_deref(), Some(*text));
            }
        }
        assert_eq!(read(vec![PathBuf::from("a")], "/dev").unwrap(), "a, /dev");
        assert_eq!(thirty.text(), "30");
    }

    #[test]
    fn invalid_texts_are_refused() {
        for text in ["", "1", "yes", "True"] {
            assert_eq!(read(false, text), None, "{text}");
        }
        for text in ["", "-1", "1x", "1.5"] {
            assert_eq!(read(0, text), None, "{text}");
        }
        for text in ["", "0", "-1", "nan", "inf", "1e300", "soon"] {
            assert_eq!(read(None::<Duration>, text), None, "{text}");
        }
        for text in ["", "zip", "zstd:99", "none:1"] {
            assert_eq!(read(Compress::default(), text), None, "{text}");
        }
        assert_eq!(read(None::<DiscardMode>, "later"), None);
        assert_eq!(read(Vec::new(), ""), None);
    }
}

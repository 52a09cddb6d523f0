//! Options by name, as programs in other languages set them.

use std::ffi::{OsStr, OsString};

use super::mount_word::MountWord;
use super::value::OptionKind;
use super::{OPEN_OPTIONS, OpenOptions};

/// An option for opening a volume: a row of [`OPEN_OPTIONS`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOption {
    pub(super) name: &'static str,
    pub(super) kind: OptionKind,
    /// The lines of the documentation.
    pub(super) lines: &'static [&'static str],
    pub(super) words: &'static [MountWord<OpenOptions>],
    pub(super) set: fn(&mut OpenOptions, &OsStr) -> Option<()>,
    pub(super) text: fn(&OpenOptions) -> String,
}

/// An option by name that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("unknown option '{0}'")]
    Unknown(String),
    #[error("option '{name}': bad value '{}', expected {expected}", value.display())]
    BadValue {
        name: &'static str,
        value: OsString,
        /// A description of the accepted values.
        expected: &'static str,
    },
}

impl OpenOption {
    /// Returns the name, which is also the name of the setter.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn kind(&self) -> OptionKind {
        self.kind
    }

    /// Returns the default of the library as text.
    pub fn default_value(&self) -> String {
        (self.text)(&OpenOptions::new().writable(true))
    }

    /// Returns the documentation, which names no language.
    pub fn help(&self) -> String {
        let lines = self.lines.iter().map(|line| line.trim());
        lines.collect::<Vec<_>>().join(" ")
    }
}

/// Returns the words of `mount -o` that set options of a volume.
pub fn volume_words() -> impl Iterator<Item = &'static MountWord<OpenOptions>> {
    OPEN_OPTIONS.iter().flat_map(|option| option.words)
}

impl OpenOptions {
    /// Sets an option by its name in [`OPEN_OPTIONS`]. An error changes nothing.
    pub fn set(&mut self, name: &str, value: &OsStr) -> Result<(), OptionError> {
        let option = OPEN_OPTIONS.iter().find(|option| option.name == name);
        let option = option.ok_or_else(|| OptionError::Unknown(name.into()))?;
        (option.set)(self, value).ok_or_else(|| OptionError::BadValue {
            name: option.name,
            value: value.into(),
            expected: option.kind.syntax(),
        })
    }

    /// Returns the option of this name as text.
    pub fn text(&self, name: &str) -> Option<String> {
        let option = OPEN_OPTIONS.iter().find(|option| option.name == name)?;
        Some((option.text)(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut options = OpenOptions::new();
        for (name, value) in [
            ("compress", "zstd:3"),
            ("degraded", "true"),
            ("cache_bytes", "16m"),
        ] {
            options.set(name, OsStr::new(value)).unwrap();
            assert_eq!(options.text(name).as_deref(), Some(value));
        }
        let expected = OpenOptions::new()
            .compress("zstd:3".parse().unwrap())
            .degraded(true)
            .cache_bytes(16 << 20);
        assert_eq!(options, expected);
    }

    #[test]
    fn default_is_set_by_its_own_text() {
        let default = OpenOptions::new();
        for option in OPEN_OPTIONS {
            let text = (option.text)(&default);
            let mut options = default.clone();
            match (option.set)(&mut options, OsStr::new(&text)) {
                Some(()) if !matches!(option.kind, OptionKind::Paths | OptionKind::Text) => {
                    assert_eq!(options, default);
                }
                _ => assert!(
                    matches!(option.name, "memory_bytes" | "scan" | "volume"),
                    "{}",
                    option.name
                ),
            }
        }
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        let mut options = OpenOptions::new();
        let mut set = |name, value| {
            options
                .set(name, OsStr::new(value))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(set("compres", "zstd"), "unknown option 'compres'");
        assert_eq!(
            set("compress", "zstd:99"),
            "option 'compress': bad value 'zstd:99', expected none, lzo, zlib[:1-9] or zstd[:1-15]"
        );
        assert_eq!(options, OpenOptions::new());
    }
}

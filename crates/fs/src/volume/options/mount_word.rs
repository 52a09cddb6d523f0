//! Words of `mount -o`, with the kernel's syntax of values.
//!
//! A row of a table of words has a name, the type of the value, a setter, and whether a remount can change it. The
//! words of [`OpenOptions`](crate::OpenOptions) are columns of its table; the crate `fuse` has a table of the others.

use rustix::mount::MountFlags;
use ubtrfs_format::compress::Compression;

use crate::inode::Compress;

/// The reason why a word was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordRefusal {
    NoValue,
    UnwantedValue,
    BadValue,
    /// It is known, and not supported for this reason.
    Unsupported(&'static str),
}

/// The result of an accepted word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOutcome {
    Set,
    /// It has no effect. The reason is for users who may rely on one.
    WithoutEffect(Option<&'static str>),
}

/// The effect of a word on options of type `T`.
#[derive(Debug)]
pub enum WordEffect<T: 'static> {
    /// It has no value.
    Flag(fn(&mut T)),
    /// It requires a value.
    Value(fn(&mut T, &[u8]) -> Result<(), WordRefusal>),
    /// It may have a value.
    OptionalValue(fn(&mut T, Option<&[u8]>) -> Result<(), WordRefusal>),
    /// It has no effect. The reason is for users who may rely on one.
    None(Option<&'static str>),
    /// It requires a value, and has no effect.
    NoneWithValue,
    /// It is known, and refused for this reason.
    Unsupported(&'static str),
}

/// The origin of a word. Help texts have a list for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordGroup {
    /// `mount -t btrfs`.
    Btrfs,
    /// mount(8), for any file system.
    System,
    Fuse,
    /// This program.
    Ours,
}

/// The change of a mount by the word in a remount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordRemount {
    /// Only a new mount changes it.
    Never,
    /// The process that serves the mount applies it.
    Live,
    /// The kernel keeps it, as flags: the word decides `decided`, and sets the subset `set`.
    Flags {
        decided: MountFlags,
        set: MountFlags,
    },
    /// It must be valid, and changes nothing: it is in fstab(5), and the kernel's btrfs also ignores it.
    Ignored,
    /// mount(8) repeats it, because the kernel shows it for every mount of ours. Its value is not examined.
    Repeated,
}

/// A word of `mount -o` that sets options of type `T`.
#[derive(Debug)]
pub struct MountWord<T: 'static> {
    pub name: &'static str,
    pub effect: WordEffect<T>,
    pub group: WordGroup,
    pub remount: WordRemount,
    /// The value, as help texts show it. Empty if the word has no value, or if help texts omit it.
    pub placeholder: &'static str,
    /// Values to complete. An empty value completes the word alone, or `name=` if it requires a value.
    pub values: &'static [&'static str],
    /// It restores the default. Help texts list it apart.
    pub is_opposite: bool,
    /// Neither listed nor completed: another name, or of little use.
    pub is_hidden: bool,
}

impl<T> MountWord<T> {
    const fn new(
        name: &'static str,
        placeholder: &'static str,
        effect: WordEffect<T>,
    ) -> MountWord<T> {
        MountWord {
            name,
            effect,
            group: WordGroup::Btrfs,
            remount: WordRemount::Never,
            placeholder,
            values: &[""],
            is_opposite: false,
            is_hidden: false,
        }
    }

    /// Defines a word without a value.
    pub const fn flag(name: &'static str, set: fn(&mut T)) -> MountWord<T> {
        MountWord::new(name, "", WordEffect::Flag(set))
    }

    /// Defines a word that requires a value.
    pub const fn value(
        name: &'static str,
        placeholder: &'static str,
        set: fn(&mut T, &[u8]) -> Result<(), WordRefusal>,
    ) -> MountWord<T> {
        MountWord::new(name, placeholder, WordEffect::Value(set))
    }

    /// Defines a word with or without a value.
    pub const fn optional_value(
        name: &'static str,
        placeholder: &'static str,
        set: fn(&mut T, Option<&[u8]>) -> Result<(), WordRefusal>,
    ) -> MountWord<T> {
        MountWord::new(name, placeholder, WordEffect::OptionalValue(set))
    }

    /// Defines a word that is accepted without effect.
    pub const fn without_effect(name: &'static str, reason: Option<&'static str>) -> MountWord<T> {
        MountWord::new(name, "", WordEffect::None(reason)).hidden()
    }

    /// Defines a word with a value that is accepted without effect.
    pub const fn value_without_effect(name: &'static str) -> MountWord<T> {
        MountWord::new(name, "", WordEffect::NoneWithValue).hidden()
    }

    /// Defines a word that is refused.
    pub const fn unsupported(name: &'static str, reason: &'static str) -> MountWord<T> {
        MountWord::new(name, "", WordEffect::Unsupported(reason)).hidden()
    }

    #[must_use]
    pub const fn in_group(mut self, group: WordGroup) -> MountWord<T> {
        self.group = group;
        self
    }

    #[must_use]
    pub const fn remount(mut self, remount: WordRemount) -> MountWord<T> {
        self.remount = remount;
        self
    }

    #[must_use]
    pub const fn live(self) -> MountWord<T> {
        self.remount(WordRemount::Live)
    }

    #[must_use]
    pub const fn values(mut self, values: &'static [&'static str]) -> MountWord<T> {
        self.values = values;
        self
    }

    #[must_use]
    pub const fn opposite(mut self) -> MountWord<T> {
        self.is_opposite = true;
        self
    }

    #[must_use]
    pub const fn hidden(mut self) -> MountWord<T> {
        self.is_hidden = true;
        self
    }
}

impl<T> MountWord<T> {
    /// Sets the options.
    pub fn apply(&self, options: &mut T, value: Option<&[u8]>) -> Result<WordOutcome, WordRefusal> {
        match (&self.effect, value) {
            (WordEffect::Unsupported(reason), _) => return Err(WordRefusal::Unsupported(reason)),
            (WordEffect::OptionalValue(set), value) => set(options, value)?,
            (WordEffect::Flag(set), None) => set(options),
            (WordEffect::Value(set), Some(value)) => set(options, value)?,
            (WordEffect::None(reason), None) => return Ok(WordOutcome::WithoutEffect(*reason)),
            (WordEffect::NoneWithValue, Some(_)) => return Ok(WordOutcome::WithoutEffect(None)),
            (WordEffect::Flag(_) | WordEffect::None(_), Some(_)) => {
                return Err(WordRefusal::UnwantedValue);
            }
            (WordEffect::Value(_) | WordEffect::NoneWithValue, None) => {
                return Err(WordRefusal::NoValue);
            }
        }
        Ok(WordOutcome::Set)
    }

    /// Returns the word with its value, as help texts show it.
    pub fn usage(&self) -> String {
        let MountWord {
            name, placeholder, ..
        } = self;
        match self.effect {
            _ if placeholder.is_empty() => name.to_string(),
            WordEffect::OptionalValue(_) if !self.values.contains(&"") => {
                format!("{name}={placeholder}")
            }
            WordEffect::OptionalValue(_) => format!("{name}[={placeholder}]"),
            _ => format!("{name}={placeholder}"),
        }
    }

    /// Returns the texts to complete. The user continues after a final `=`.
    pub fn completions(&self) -> impl Iterator<Item = String> {
        let requires_value = matches!(self.effect, WordEffect::Value(_));
        self.values.iter().map(move |value| match *value {
            "" if requires_value => format!("{}=", self.name),
            "" => self.name.to_owned(),
            value => format!("{}={value}", self.name),
        })
    }
}

/// Returns a value as text.
pub fn word_text(value: &[u8]) -> Result<&str, WordRefusal> {
    std::str::from_utf8(value).map_err(|_| WordRefusal::BadValue)
}

/// Parses a number with the kernel's syntax for options: decimal, hexadecimal after 0x, or octal after 0.
pub fn word_number(value: &[u8]) -> Result<u64, WordRefusal> {
    number(word_text(value)?).ok_or(WordRefusal::BadValue)
}

/// Parses a number of bytes with the kernel's suffixes.
pub(super) fn word_bytes(value: &[u8]) -> Result<u64, WordRefusal> {
    bytes(word_text(value)?).ok_or(WordRefusal::BadValue)
}

/// Parses a compression with the kernel's syntax. The bare word means zlib.
pub(super) fn word_compress(value: Option<&[u8]>, force: bool) -> Result<Compress, WordRefusal> {
    let text = value.map_or(Ok("zlib"), word_text)?;
    compress(text, force).ok_or(WordRefusal::BadValue)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => digits_of(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => digits_of(&text[1..], 8),
        None => digits_of(text, 10),
    }
}

fn digits_of(text: &str, radix: u32) -> Option<u64> {
    // The standard library accepts a sign.
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u64::from_str_radix(text, radix).ok().filter(|_| plain)
}

/// Parses a number of bytes with the kernel's suffixes: k, m, g, t, p, e.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (digits, suffix) = match text.bytes().last()? {
        last if last.is_ascii_digit() => (text, None),
        // A digit of a hexadecimal number.
        b'e' | b'E' if text.starts_with("0x") => (text, None),
        last => (text.get(..text.len() - 1)?, Some(last)),
    };
    let shift = match suffix.map(|suffix| suffix.to_ascii_lowercase()) {
        None => 0,
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        Some(b'p') => 50,
        Some(b'e') => 60,
        Some(_) => return None,
    };
    number(digits)?.checked_mul(1 << shift)
}

/// Parses `zlib`, `zstd:9`, `lzo`, `no`. A level out of range is clamped later, as by the kernel. The level of LZO is
/// ignored.
fn compress(text: &str, force: bool) -> Option<Compress> {
    let compress = Compress::with_any_level(text).ok()?;
    Some(match compress.algorithm {
        Compression::None => compress,
        Compression::Lzo => Compress {
            level: 0,
            force,
            ..compress
        },
        Compression::Zlib | Compression::Zstd => Compress { force, ..compress },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(number("010"), Some(8));
        assert_eq!(number("0x1f"), Some(31));
        assert_eq!(number("0"), Some(0));
        for bad in ["", "+1", "-1", "0x", "0x+1", "08", "1 "] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(bytes("2k"), Some(2048));
        assert_eq!(bytes("1G"), Some(1 << 30));
        assert_eq!(bytes("0x1e"), Some(30));
        for bad in ["", "k", "1x", "1kk", "16E", "\u{e9}"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn compression_has_the_values_of_the_kernel() {
        let of = |text| compress(text, false);
        let with = |algorithm, level| {
            Some(Compress {
                algorithm,
                level,
                force: false,
            })
        };
        assert_eq!(of("zlib"), with(Compression::Zlib, 0));
        assert_eq!(of("zstd:15"), with(Compression::Zstd, 15));
        assert_eq!(of("zstd:-3"), with(Compression::Zstd, -3));
        assert_eq!(of("lzo"), with(Compression::Lzo, 0));
        assert_eq!(of("lzo:1"), with(Compression::Lzo, 0));
        assert_eq!(of("no"), Some(Compress::default()));
        for bad in ["", "zip", "zstd:", "zstd:x", "lzo:x", "zstd:1:2", "no:1"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}

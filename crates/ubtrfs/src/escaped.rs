//! Names and paths in messages, with arbitrary bytes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Displays a name or path in a message: valid text unchanged, everything else escaped. A name in a volume may contain
/// any bytes, such as escape sequences of a terminal.
///
/// ```
/// use ubtrfs::{Escaped, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().write("/\u{1b}[2Jname", b"content")?;
/// for entry in volume.root().read_dir("/")? {
///     assert_eq!(Escaped::of(&entry?.path()).to_string(), r"/\u{1b}[2Jname");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl<'a> Escaped<'a> {
    /// Displays a name or path of any type that can be converted.
    pub fn of(name: &'a (impl AsRef<OsStr> + ?Sized)) -> Escaped<'a> {
        Escaped(name.as_ref().as_bytes())
    }

    /// Returns whether a character is escaped, because it can affect a terminal or mislead a reader: control
    /// characters, changes of direction, and invisible characters.
    pub fn escapes(c: char) -> bool {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if Escaped::escapes(c) {
                    write!(f, "{}", c.escape_default())?
                } else {
                    write!(f, "{c}")?
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

//! Names and paths, which are any bytes, in messages.
//!
//! A name from an image may hold escape sequences: they never reach a terminal.

use std::fmt;

/// Shows bytes in a message: valid text as it is, everything else escaped.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match is_unsafe_to_print(c) {
                    true => write!(f, "{}", c.escape_default())?,
                    false => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Tells whether a character can act on a terminal or mislead a reader: it controls, changes the direction, or is not seen.
pub fn is_unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

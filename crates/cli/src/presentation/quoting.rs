//! Names and paths, which are any bytes, made fit for a person's terminal and for messages.
//!
//! A name from an image may hold escape sequences: they never reach a terminal. Output that is not a
//! terminal gets the bytes as they are, as ls(1) does.

use std::fmt;

#[cfg(test)]
mod tests;

/// Shows bytes so that a shell reads them back: plain, in '...', or in $'...' with escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShellQuoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for ShellQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if text.chars().any(is_unsafe) => write_escaped(f, self.0),
            Ok("") => f.write_str("''"),
            Ok(text) if text.bytes().all(is_plain) => f.write_str(text),
            Ok(text) if !text.contains('\'') => write!(f, "'{text}'"),
            Ok(text) => write!(f, "'{}'", text.replace('\'', r"'\''")),
            Err(_) => write_escaped(f, self.0),
        }
    }
}

/// Shows bytes in a message: valid text as it is, everything else escaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match is_unsafe(c) {
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

/// Control characters, and those that change the direction or vanish.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x80 || byte.is_ascii_alphanumeric() || b"_-./+,:@%^=".contains(&byte)
}

fn write_escaped(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_str("$'")?;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                '\r' => f.write_str("\\r")?,
                '\'' | '\\' => write!(f, "\\{c}")?,
                c if is_unsafe(c) => write_octal(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                c => write!(f, "{c}")?,
            }
        }
        write_octal(f, chunk.invalid())?;
    }
    f.write_str("'")
}

fn write_octal(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

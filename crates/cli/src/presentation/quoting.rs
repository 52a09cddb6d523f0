//! Escaping of names and paths, which may be any bytes, for terminals and messages.
//!
//! A name from an image may contain escape sequences, which must never reach a terminal. As in ls(1), other
//! output gets the bytes unchanged.

use std::fmt;

pub(crate) use ubtrfs::Escaped;

#[cfg(test)]
mod tests;

/// Displays bytes in a notation that a shell reads back: plain, in '...', or in $'...' with escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShellQuoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for ShellQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) if text.chars().any(Escaped::escapes) => write_escaped(f, self.0),
            Ok("") => f.write_str("''"),
            Ok(text) if text.bytes().all(is_plain) => f.write_str(text),
            Ok(text) if !text.contains('\'') => write!(f, "'{text}'"),
            Ok(text) => write!(f, "'{}'", text.replace('\'', r"'\''")),
            Err(_) => write_escaped(f, self.0),
        }
    }
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
                c if Escaped::escapes(c) => write_octal(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
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

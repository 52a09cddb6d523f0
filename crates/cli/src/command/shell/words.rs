//! Splits a line of a script into words, with quotes and comments as in a POSIX shell, and `$'...'`.
//!
//! A name that `ls` prints on a terminal is read back unchanged. There are no variables, patterns or pipes.

use std::ffi::OsString;
use std::iter::Peekable;
use std::os::unix::ffi::OsStringExt;
use std::slice::Iter;

#[cfg(test)]
mod tests;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordsError {
    /// The next line may complete it.
    #[error("the quote is not closed")]
    Unfinished,
    #[error("a name or argument cannot hold a NUL")]
    Nul,
}

/// Returns the words of a line, with or without its newline.
pub(super) fn split(line: &[u8]) -> Result<Vec<OsString>, WordsError> {
    let mut splitter = Splitter {
        rest: line.iter().peekable(),
        words: Vec::new(),
        word: None,
    };
    splitter.run()?;
    if splitter.words.iter().any(|word| word.contains(&0)) {
        return Err(WordsError::Nul);
    }
    Ok(splitter.words.into_iter().map(OsString::from_vec).collect())
}

struct Splitter<'a> {
    rest: Peekable<Iter<'a, u8>>,
    words: Vec<Vec<u8>>,
    /// None between words.
    word: Option<Vec<u8>>,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), WordsError> {
        while let Some(&byte) = self.rest.next() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.words.extend(self.word.take()),
                b'#' if self.word.is_none() => {
                    while self.rest.next_if(|byte| **byte != b'\n').is_some() {}
                }
                b'\'' => self.single()?,
                b'"' => self.double()?,
                b'$' if self.rest.next_if_eq(&&b'\'').is_some() => self.escaped()?,
                b'\\' => match self.rest.next() {
                    // A backslash at the end of the line continues it.
                    Some(b'\n') | None if self.rest.peek().is_none() => {
                        return Err(WordsError::Unfinished);
                    }
                    Some(b'\n') | None => {}
                    Some(&byte) => self.push(byte),
                },
                byte => self.push(byte),
            }
        }
        self.words.extend(self.word.take());
        Ok(())
    }

    fn push(&mut self, byte: u8) {
        self.word.get_or_insert_default().push(byte);
    }

    fn next_quoted(&mut self) -> Result<u8, WordsError> {
        self.rest.next().copied().ok_or(WordsError::Unfinished)
    }

    fn single(&mut self) -> Result<(), WordsError> {
        self.word.get_or_insert_default();
        loop {
            match self.next_quoted()? {
                b'\'' => return Ok(()),
                byte => self.push(byte),
            }
        }
    }

    fn double(&mut self) -> Result<(), WordsError> {
        self.word.get_or_insert_default();
        loop {
            match self.next_quoted()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_quoted()? {
                    b'\n' => {}
                    byte @ (b'"' | b'\\' | b'$' | b'`') => self.push(byte),
                    byte => {
                        self.push(b'\\');
                        self.push(byte);
                    }
                },
                byte => self.push(byte),
            }
        }
    }

    /// Reads `$'...'`, after its first quote.
    fn escaped(&mut self) -> Result<(), WordsError> {
        self.word.get_or_insert_default();
        loop {
            match self.next_quoted()? {
                b'\'' => return Ok(()),
                b'\\' => self.escape()?,
                byte => self.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<(), WordsError> {
        let byte = match self.next_quoted()? {
            b'a' => 0x07,
            b'b' => 0x08,
            b'e' | b'E' => 0x1b,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'x' => self.number(0, 16, 2),
            digit @ b'0'..=b'7' => self.number(digit - b'0', 8, 2),
            b'u' => return self.character(4),
            b'U' => return self.character(8),
            byte @ (b'\\' | b'\'' | b'"' | b'?') => byte,
            byte => {
                self.push(b'\\');
                byte
            }
        };
        self.push(byte);
        Ok(())
    }

    /// Reads up to `digits` more digits. As in shells, a number that does not fit in a byte is truncated.
    fn number(&mut self, first: u8, radix: u32, digits: usize) -> u8 {
        let mut number = u32::from(first);
        for _ in 0..digits {
            let Some(digit) = self.digit(radix) else {
                break;
            };
            number = number * radix + digit;
        }
        number as u8
    }

    fn character(&mut self, digits: usize) -> Result<(), WordsError> {
        let mut number = 0u32;
        for _ in 0..digits {
            let Some(digit) = self.digit(16) else { break };
            number = number << 4 | digit;
        }
        let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut bytes = [0; 4];
        for &byte in character.encode_utf8(&mut bytes).as_bytes() {
            self.push(byte);
        }
        Ok(())
    }

    fn digit(&mut self, radix: u32) -> Option<u32> {
        let digit = char::from(**self.rest.peek()?).to_digit(radix)?;
        self.rest.next();
        Some(digit)
    }
}

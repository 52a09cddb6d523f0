//! Relays the output of another user's process.
//!
//! A process can do everything with a passed descriptor that its opener could: a terminal's descriptor can
//! also be read. So a user's server that runs a command for root writes to pipes instead. The output comes
//! from that user, and is therefore escaped for a terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::thread::{self, Builder};

use crate::presentation::quoting::Escaped;

/// The most bytes of one line that are gathered for a terminal.
const LINE_BYTES: u64 = 64 << 10;

/// Calls `have_done` with replacements for standard output and standard error, and displays their contents
/// until all of them are closed.
///
/// The input also goes through a pipe.
pub(super) fn relayed<T>(
    input: Option<&File>,
    have_done: impl FnOnce(PipeWriter, PipeWriter, Option<&File>) -> T,
) -> io::Result<T> {
    let (out, to_out) = io::pipe()?;
    let (err, to_err) = io::pipe()?;
    let input = input.map(fed).transpose()?;
    thread::scope(|scope| {
        let thread = || Builder::new().name("ubtrfs-show".to_owned());
        // If the reader of our output is gone, the pipe is closed as well.
        let show_out = || show(out, &mut io::stdout(), io::stdout().is_terminal());
        let show_err = || show(err, &mut io::stderr(), io::stderr().is_terminal());
        thread().spawn_scoped(scope, show_out)?;
        // On an error, the pipe of the first thread is closed.
        thread().spawn_scoped(scope, show_err)?;
        Ok(have_done(to_out, to_err, input.as_ref()))
    })
}

/// Creates a pipe that carries the contents of a file. The thread that fills it is not joined, because it may
/// wait for the file's writer.
fn fed(input: &File) -> io::Result<File> {
    let (from, mut to) = io::pipe()?;
    let mut input = input.try_clone()?;
    ubtrfs_device::thread::start("ubtrfs-input", move || io::copy(&mut input, &mut to))?;
    Ok(OwnedFd::from(from).into())
}

fn show(from: PipeReader, to: &mut impl Write, is_terminal: bool) -> io::Result<()> {
    if !is_terminal {
        let mut from = from;
        io::copy(&mut from, to)?;
        return to.flush();
    }
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while (&mut from).take(LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        write_line(&line, to)?;
        line.clear();
    }
    Ok(())
}

/// Writes a line with its tabs and its newline unescaped.
fn write_line(line: &[u8], to: &mut impl Write) -> io::Result<()> {
    let is_layout = |byte: &u8| matches!(byte, b'\n' | b'\t');
    for piece in line.split_inclusive(is_layout) {
        let (text, layout) = match piece.split_last() {
            Some((last, text)) if is_layout(last) => (text, &piece[text.len()..]),
            _ => (piece, &b""[..]),
        };
        write!(to, "{}", Escaped(text))?;
        to.write_all(layout)?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_would_command_a_terminal_are_shown_escaped() {
        let mut shown = Vec::new();
        write_line(b"a\tb\x1b]2;x\x07\xff\n", &mut shown).unwrap();
        assert_eq!(shown, b"a\tb\\u{1b}]2;x\\u{7}\\xff\n");
        shown.clear();
        write_line(b"\tend", &mut shown).unwrap();
        assert_eq!(shown, b"\tend");
    }
}

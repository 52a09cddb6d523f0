//! Mode bits in the notation of ls(1) and stat(1).

use rustix::fs::{FileType as Kind, Mode};
use ubtrfs::{FileKind, Metadata};

/// Returns the umask of this process.
pub(crate) fn umask() -> u32 {
    // It can only be read by setting it.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// Formats a mode as "drwxr-xr-x".
pub(crate) fn text(mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind_letter(Kind::from_raw_mode(mode)));
    let triples = [
        (mode >> 6, mode & 0o4000 != 0, 's'),
        (mode >> 3, mode & 0o2000 != 0, 's'),
        (mode, mode & 0o1000 != 0, 't'),
    ];
    for (bits, special, letter) in triples {
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, special) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn kind_letter(kind: Kind) -> char {
    match kind {
        Kind::RegularFile => '-',
        Kind::Directory => 'd',
        Kind::CharacterDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Symlink => 'l',
        Kind::Unknown => '?',
    }
}

/// Returns the file type in the words of stat(1).
pub(crate) fn kind_words(file: &Metadata) -> &'static str {
    match Kind::from_raw_mode(file.mode()) {
        Kind::RegularFile if file.len() == 0 => "regular empty file",
        Kind::RegularFile => "regular file",
        Kind::Directory => "directory",
        Kind::CharacterDevice => "character special file",
        Kind::BlockDevice => "block special file",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Symlink => "symbolic link",
        Kind::Unknown => "weird file",
    }
}

/// Returns the file type in one word, for JSON.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::CharDevice => "character-device",
        FileKind::BlockDevice => "block-device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Symlink => "symlink",
    }
}

//! Mode bits as ls(1) and stat(1) write them.

use rustix::fs::Mode;
use ubtrfs_engine::FileKind;

/// The bits that new files of this process go without.
pub(crate) fn umask() -> u32 {
    // It is read by setting it.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode()
}

/// "drwxr-xr-x"
pub(crate) fn text(mode: u32) -> String {
    let kind = FileKind::from_mode(mode).map_or('?', kind_letter);
    let mut text = String::with_capacity(10);
    text.push(kind);
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

fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Symlink => 'l',
    }
}

/// The kind in the words of stat(1).
pub(crate) fn kind_words(kind: FileKind, size: u64) -> &'static str {
    match kind {
        FileKind::Regular if size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Symlink => "symbolic link",
    }
}

/// The kind in one word, for JSON.
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

//! The text of streams, compared with `btrfs receive --dump` of btrfs-progs 6.14.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;

use super::*;
use crate::format::{StreamReader, StreamVersion, StreamWriter};

fn text(commands: &[Command<'_>]) -> String {
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
    for command in commands {
        writer.write(command).unwrap();
    }
    writer.write(&Command::End).unwrap();
    let stream = writer.into_inner();
    let mut reader = StreamReader::open(&*stream).unwrap();
    let mut lines = CommandLines::new(|seconds| seconds);
    let mut text = String::new();
    while let Some(command) = reader.next_command().unwrap() {
        text.extend(lines.line_of(&command).map(|line| line + "\n"));
    }
    text
}

const SUBVOL: Command<'_> = Command::Subvol {
    path: b"s",
    uuid: Uuid([0xab; 16]),
    ctransid: Transid(7),
};

#[test]
fn lines_are_those_of_btrfs_progs() {
    let text = text(&[
        SUBVOL,
        Command::Mkfile {
            path: b"/a b/",
            ino: InodeNr(1),
        },
        Command::Chown {
            path: b"",
            uid: 1,
            gid: 2,
        },
        Command::Fileattr {
            path: b"a",
            flags: 528,
        },
        Command::SetXattr {
            path: b"a",
            name: b"user.\x01",
            value: b"",
        },
    ]);
    let wanted = "\
subvol          ./s                             uuid=abababab-abab-abab-abab-abababababab transid=7
mkfile          ./s//a\\ b
chown           ./s/                            gid=2 uid=1
fileattr        ./s/a                           fileattr=0x528
set_xattr       ./s/a                           name=user.\\001  len=0
";
    assert_eq!(text, wanted);
}

#[test]
fn one_space_at_least_follows_a_path() {
    for (len, spaces) in [(27, 1), (26, 2), (28, 1), (29, 1), (100, 1)] {
        let path = vec![b'y'; len];
        let text = text(&[
            SUBVOL,
            Command::Truncate {
                path: &path,
                size: 5,
            },
        ]);
        let line = text.lines().nth(1).unwrap();
        let wanted = format!(
            "truncate        ./s/{}{:spaces$}size=5",
            "y".repeat(len),
            ""
        );
        assert_eq!(line, wanted);
    }
}

#[test]
fn flags_of_a_subvolume_have_a_line() {
    let mut lines = CommandLines::new(|seconds| seconds);
    lines.line_of(&SUBVOL).unwrap();
    let line = lines.line_of(&Command::SubvolumeFlags { flags: 1 });
    let wanted = "subvol_flags    ./s                             flags=0x1";
    assert_eq!(line.as_deref(), Some(wanted));
}

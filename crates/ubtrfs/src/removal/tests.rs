//! Directories that cannot be entered: moved away by another thread, or damaged.

use std::io::ErrorKind;

use super::*;
use crate::volume::Volume;

#[test]
fn directory_that_was_moved_away_is_gone_and_one_that_was_not_is_damaged() {
    let volume = Volume::in_memory(256 << 20).unwrap();
    let root = volume.root();
    root.create_dir_all("/top/dir").unwrap();
    let find = |path: &str| root.resolve(Path::new(path)).unwrap();
    let entry = |name: &[u8]| Entry {
        name: name.to_vec(),
        kind: FileKind::Directory,
        id: find("/top/dir"),
        index: 2,
    };
    let dir = find("/top");
    let refused = |entry: &Entry| {
        let refused = Refused::Elsewhere;
        let problem = RemovalProblem::Enter {
            dir,
            entry,
            refused,
        };
        first_failure(&root.engine, b"/top/old", problem)
    };
    refused(&entry(b"old")).unwrap();
    let damaged = refused(&entry(b"dir")).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::InvalidData, "{damaged}");
}

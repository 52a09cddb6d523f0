//! Modes change as in GNU chmod.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::ModeChange;

const MODES: [&str; 26] = [
    "644",
    "0755",
    "4711",
    "02755",
    "00755",
    "u+x",
    "go-w",
    "a=rx",
    "=rw",
    "+x",
    "-w",
    "u=g",
    "g=u-w",
    "o+X",
    "a+X",
    "u+s",
    "g+s",
    "+t",
    "u-s,g-s",
    "ug=rwx,o=",
    "a=",
    "u=rwX,g=rX",
    "=s",
    "g=o+t",
    "-t",
    "u+rw-x=g",
];

#[test]
fn modes_change_as_by_chmod() {
    const UMASK: u32 = 0o027;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    for text in MODES {
        let change: ModeChange = text.parse().unwrap();
        for old in [0o644, 0o755, 0o000, 0o4755, 0o6711, 0o1777, 0o2070] {
            for (path, is_dir) in [(&file, false), (&folder, true)] {
                std::fs::set_permissions(path, PermissionsExt::from_mode(old)).unwrap();
                let script = format!("umask {UMASK:o}; chmod -- \"$0\" \"$1\"");
                let chmod = Command::new("sh")
                    .args(["-c", &script, text])
                    .arg(path)
                    .output();
                // chmod warns and fails if the umask restricted the change.
                let _ = chmod.unwrap();
                let expected = path.metadata().unwrap().permissions().mode() & 0o7777;
                let found = change.apply(old, is_dir, UMASK);
                assert_eq!(
                    found, expected,
                    "{old:o} {text} {is_dir}: {found:o} {expected:o}"
                );
            }
        }
    }
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "", "8", "77777", "u", "rwx", "u+q", "z+r", "u+r,", "u+ug", "+rwé", "-1",
    ] {
        assert!(text.parse::<ModeChange>().is_err(), "{text}");
    }
}

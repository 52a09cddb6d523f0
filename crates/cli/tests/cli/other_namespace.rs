//! A second mount namespace.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A process with its own mount namespace, which keeps one mount of ours.
pub(crate) struct Elsewhere {
    child: Child,
    _stays: Option<ChildStdin>,
}

/// Unmounts the mounts of other tests, which expect that their servers end.
const KEEP_ONE: &str = r#"
while read -r _ dir type _; do
    case $type in fuse.ubtrfs | fuseblk.ubtrfs) [ "$dir" = "$1" ] || umount -i -l "$dir" 2>&- ;; esac
done </proc/mounts
echo
exec 1>&-
read -r _
"#;

impl Elsewhere {
    pub(crate) fn keeping(mountpoint: &Path) -> Elsewhere {
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                KEEP_ONE,
                "sh",
            ])
            .arg(mountpoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut made = Vec::new();
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_to_end(&mut made).unwrap();
        assert_eq!(made, b"\n", "no namespace");
        let stays = child.stdin.take();
        Elsewhere {
            child,
            _stays: stays,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

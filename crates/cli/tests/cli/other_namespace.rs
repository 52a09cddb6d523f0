//! A mount namespace other than that of the tests.

use std::io::Read;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A process with its own mount namespace, which keeps all mounts that exist when it is created.
pub(crate) struct Elsewhere {
    child: Child,
    _stays: Option<ChildStdin>,
}

impl Elsewhere {
    pub(crate) fn new() -> Elsewhere {
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("echo; exec 1>&-; read _")
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

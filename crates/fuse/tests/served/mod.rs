//! A mount that is served by a process of its own.
//!
//! A process that maps files of a mount must not serve it. A page fault may hold the mmap lock of the process while it
//! waits for the server, which needs that lock to allocate memory. Such a process cannot be killed.

#[path = "../idle/mod.rs"]
mod idle;

use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use ubtrfs_device::DeviceName;
use ubtrfs_fs::Volume;
use ubtrfs_fuse::mount::{MountError, Options, Session, UnmountError, mount};

use self::idle::unmount_once_idle;

const IMAGE: &str = "UBTRFS_TEST_IMAGE";
const DIR: &str = "UBTRFS_TEST_DIR";
const WORDS: &str = "UBTRFS_TEST_WORDS";

pub(crate) struct Served {
    child: Child,
}

impl Served {
    /// Mounts `image` with the options `words`. The test program must have an ignored test of this name that calls
    /// [`serve`].
    pub(crate) fn start(test: &str, image: &Path, dir: &Path, words: &str) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(IMAGE, image)
            .env(DIR, dir)
            .env(WORDS, words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_ready = lines
            .by_ref()
            .map_while(Result::ok)
            .inspect(|line| eprintln!("server: {line}"))
            .any(|line| line == "ready");
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("server: {line}");
            }
        });
        assert!(is_ready, "the server mounts");
        Served { child }
    }

    /// Unmounts, and returns when everything is on the volume.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Serves in the child process until standard input ends. Does nothing in other processes.
pub(crate) fn serve() {
    let Some(image) = std::env::var_os(IMAGE).map(PathBuf::from) else {
        return;
    };
    let dir = std::env::var_os(DIR).map(PathBuf::from).unwrap();
    let mut options = Options::default();
    options.add(&std::env::var_os(WORDS).unwrap()).unwrap();
    let devices = [&[DeviceName::from(&image)], options.devices.as_slice()].concat();
    let volume = Volume::open(
        &devices,
        &options.open_options(options.read_only != Some(true)),
    )
    .unwrap();
    let mut session = mount(volume, &image, &dir, &options).unwrap();
    eprintln!("ready");
    let _ = stdin().read(&mut [0]);
    unmount_once_idle(&mut session);
}

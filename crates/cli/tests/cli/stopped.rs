//! A reader that stops reading a command's output does not block other processes in the mount.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use ubtrfs_sim::kernel::{self, LoopDevice};

use crate::mounted::Mounted;
use crate::process::{empty_volume, judge, succeed, ubtrfs};
use crate::switch::with_uring;

const FILES: usize = 4000;
const LARGE_BYTES: usize = 40 << 20;
/// Together these need more space than there is, unless freed space is reused.
const REWRITES: u8 = 6;

fn small(image: &Path) {
    let words = ["mkfs", "-qf", "-b", "256M"].map(OsString::from);
    succeed(words.into_iter().chain([image.into()]));
}

/// Starts a command, and returns once it has begun to write. Its output is larger than a pipe's buffer.
fn begun(words: &[&str], mountpoint: &Path, last: Option<&str>) -> Child {
    let mut command = ubtrfs();
    command.args(words).arg(mountpoint).args(last);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    let timeout = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let stdout = child.stdout.as_ref().unwrap();
    let mut readable = [PollFd::new(stdout, PollFlags::IN)];
    assert_ne!(poll(&mut readable, Some(&timeout)).unwrap(), 0, "{words:?}");
    child
}

/// DUMP-1
#[test]
fn space_is_given_out_again_while_a_reader_has_stopped() {
    let Some(mounted) = Mounted::new("rw", small) else {
        return;
    };
    for number in 0..FILES {
        fs::write(mounted.dir.join(format!("file{number:04}")), "small").unwrap();
    }
    let large = mounted.dir.join("large");
    let rewrite = |byte: u8| {
        let mut file = File::create(&large)?;
        file.write_all(&vec![byte; LARGE_BYTES])?;
        file.sync_all()
    };
    rewrite(0).unwrap();
    let find_new = ["subvolume", "find-new"];
    let dump_tree = ["inspect-internal", "dump-tree"];
    for (words, last, end) in [
        (find_new, Some("0"), "\ntransid marker was "),
        (dump_tree, None, "\nuuid "),
    ] {
        let child = begun(&words, &mounted.dir, last);
        for round in 1..=REWRITES {
            let rewritten = rewrite(round);
            assert!(rewritten.is_ok(), "{words:?}: {round}: {rewritten:?}");
        }
        let output = child.wait_with_output().unwrap();
        let (said, text) = (output.stderr, String::from_utf8_lossy(&output.stdout));
        assert_eq!(String::from_utf8_lossy(&said), "", "{words:?}");
        assert!(output.status.success() && text.contains(end), "{words:?}");
        for number in (0..FILES).step_by(97) {
            assert!(text.contains(&format!("file{number:04}")), "{words:?}");
        }
    }
    mounted.unmount();
    judge(&mounted.image);
}

#[test]
fn a_device_is_free_after_its_umount_while_others_read_a_command_s_output() {
    if !kernel::or_skip("a_device_is_free_after_its_umount_while_others_read_a_command_s_output") {
        return;
    }
    let (scratch, image) = empty_volume();
    let device = LoopDevice::attach(&image).unwrap();
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let places = [device.path().as_os_str(), dir.as_os_str()];
    let mount = ["mount", "-o", "rw"].map(OsStr::new);
    with_uring(false, || succeed(mount.into_iter().chain(places))).unwrap();
    for number in 0..FILES {
        fs::write(dir.join(format!("file{number:04}")), "small").unwrap();
    }
    rustix::fs::sync();
    let mut child = begun(&["inspect-internal", "dump-tree"], &dir, None);
    unmount(&dir, UnmountFlags::empty()).unwrap();
    let check = ["check", "-q"].map(OsStr::new);
    succeed(check.into_iter().chain([device.path().as_os_str()]));
    child.kill().unwrap();
    child.wait().unwrap();
}

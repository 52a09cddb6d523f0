//! Commands while another process has the volume open: their behaviour and messages.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ubtrfs_sim::{is_in_first_pid_namespace, is_root_or_skip, skip_optional};

use crate::mounted::Mounted;
use crate::process::{empty_volume, fail, location, ubtrfs};

/// How long opening a device retries to get the lock.
const OF_THE_DEVICE: Duration = Duration::from_secs(1);

/// A process that holds the lock of an image until its standard input ends.
pub(crate) struct Holder(Child);

impl Holder {
    pub(crate) fn of(image: &Path) -> Holder {
        let mut holder = Command::new("flock")
            .arg(image)
            .args(["sh", "-c", "echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let said = holder.stdout.as_mut().unwrap();
        said.read_exact(&mut ready).unwrap();
        Holder(holder)
    }

    pub(crate) fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn command_waits_for_one_that_has_the_volume() {
    let (_scratch, image) = empty_volume();
    for wait in [&[][..], &["--wait"], &["--wait=60"]] {
        let holder = Holder::of(&image);
        let name = format!("d{}", wait.join(""));
        let command = ubtrfs()
            .args(wait)
            .arg("mkdir")
            .arg(location(&image, &name))
            .spawn();
        // This is longer than opening the device waits for the lock.
        std::thread::sleep(OF_THE_DEVICE * 2);
        holder.end();
        assert!(command.unwrap().wait().unwrap().success(), "{wait:?}");
    }
}

#[test]
fn command_that_is_not_to_wait_names_the_holder_of_the_volume() {
    let (_scratch, image) = empty_volume();
    let holder = Holder::of(&image);
    let pid = holder.0.id();
    let output = fail(
        [OsStr::new("--wait=0"), OsStr::new("ls"), image.as_os_str()],
        "another command has the volume open (--wait waits longer)",
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("process {pid} ")), "{said}");
    holder.end();
}

#[test]
fn mount_of_the_volume_is_named_at_once() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let at = format!("is mounted on '{}' (process ", mounted.dir.display());
    let begun = Instant::now();
    fail([OsStr::new("ls"), mounted.image.as_os_str()], &at);
    fail([OsStr::new("mkdir"), &location(&mounted.image, "d")], &at);
    fail([OsStr::new("check"), mounted.image.as_os_str()], &at);
    // Each of the three retries for a second to get the lock; waiting for a command would take ten times as
    // long.
    assert!(begun.elapsed() < Duration::from_secs(25));
    mounted.unmount();
}

/// Runs a shell script with the tested command and an image as its arguments.
fn in_shell(script: &str, image: &Path) -> std::process::Output {
    Command::new("bash")
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_ubtrfs")])
        .arg(image)
        .output()
        .unwrap()
}

const SHARED: &str = "exec 9<$2; flock -s 9; $1 mkdir $2:/shared";

#[test]
fn lock_of_the_caller_is_no_obstacle() {
    let (_scratch, image) = empty_volume();
    for script in [
        // systemd-repart, mkosi and `udevadm lock` lock the device like this.
        "flock $2 $1 mkfs -q -f $2",
        "flock -o $2 $1 mkfs -q -f $2",
        "flock -F $2 $1 mkfs -q -f $2",
        "exec 9<$2; flock 9; $1 mkfs -q -f $2",
        "exec 9<$2; flock 9; $1 mkfs -q -f $2 9<&-",
        SHARED,
        "flock $2 $1 ls $2",
    ] {
        // Shared locks of other processes may be invisible there.
        if script == SHARED && !is_in_first_pid_namespace() {
            skip_optional("shared lock of an ended process: not in the first PID namespace");
            continue;
        }
        let output = in_shell(script, &image);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{script}: {said}"
        );
    }
    // The lock of another process is an obstacle, whether or not the caller also has a lock.
    let holder = Holder::of(&image);
    let output = in_shell("$1 --wait=0 mkdir $2:/d", &image);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use"));
    holder.end();
}

/// In a container, /proc/locks lists no locks of ended processes, and none of processes outside.
#[test]
fn lock_of_the_caller_is_found_in_a_pid_namespace() {
    if !is_root_or_skip() {
        return;
    }
    let (_scratch, image) = empty_volume();
    let in_container = |script: &str| {
        let script = format!("exec unshare --pid --fork --mount-proc sh -c '{script}' sh $1 $2");
        in_shell(&script, &image)
    };
    for script in [
        "exec 9<$2; flock 9; $1 mkfs -q -f $2; exit $?",
        "exec 9<$2; flock 9; $1 mkdir $2:/d; exit $?",
    ] {
        let output = in_container(script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{script}: {said}"
        );
    }
    let holder = Holder::of(&image);
    let output = in_container("$1 --wait=0 mkdir $2:/e; exit $?");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use"));
    holder.end();
    let listed = ubtrfs().arg("ls").arg(&image).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "d\n");
}

#[test]
fn commands_below_one_lock_keep_out_of_each_other() {
    let (_scratch, image) = empty_volume();
    let script = "exec 9<$2; flock 9; mkfifo $2.in $2.out
        (printf 'mkdir /a\\npwd\\n'; read line <$2.in) | $1 shell $2 >$2.out &
        read line <$2.out
        $1 --wait=0 mkdir $2:/b; code=$?
        echo >$2.in; wait; exit $code";
    let output = in_shell(script, &image);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use"), "{said}");
    let listed = ubtrfs().arg("ls").arg(&image).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "a\n");
}

//! Cleanup at the end of a run, also after an error or a signal.
//!
//! Programs, mounts, loop devices and the work directory would outlive an interrupted run. Programs are recorded when
//! they are started, each as the leader of a process group. So Ctrl-C reaches no other program, and the children of a
//! program end with it. Mounts and loop devices are found by the work directory that contains them or their files. So
//! the cleanup includes those made at the moment of the interruption.
//!
//! Locks: the stack's. The cleaning thread holds it to the end of the process, so that nothing new is started.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Attempts to unmount before giving up.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// A resource to clean up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// A running program, with its children.
    Process(u32),
    /// The work directory, with the mounts in it and the loop devices of its files.
    Directory(PathBuf),
    /// A setting in a file, with its earlier text.
    Setting { path: PathBuf, before: String },
}

static STACK: Mutex<Vec<Undo>> = Mutex::new(Vec::new());

fn stack() -> MutexGuard<'static, Vec<Undo>> {
    STACK
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn push(undo: Undo) {
    stack().push(undo);
}

/// Removes it from the stack, after its owner has cleaned it up.
pub(crate) fn done(undo: &Undo) {
    let mut stack = stack();
    if let Some(at) = stack.iter().rposition(|kept| kept == undo) {
        stack.remove(at);
    }
}

/// Starts a program that ends with the run.
pub(crate) fn spawn(command: &mut Command) -> io::Result<(std::process::Child, Undo)> {
    let mut stack = stack();
    let child = command.process_group(0).spawn()?;
    let undo = Undo::Process(child.id());
    stack.push(undo.clone());
    Ok((child, undo))
}

/// Cleans up everything that is left. Starting another program blocks as long as the guard exists.
pub(crate) fn everything() -> impl Drop {
    let mut stack = stack();
    while let Some(undo) = stack.pop() {
        undo.run();
    }
    stack
}

/// Starts a thread that cleans up and ends the process at SIGINT, SIGTERM and SIGHUP.
pub(crate) fn on_signals() -> anyhow::Result<()> {
    let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut byte = [0];
            if io::Read::read_exact(&mut &reader, &mut byte).is_ok() {
                eprintln!("interrupted: cleaning up");
                let _all_locks = everything();
                std::process::exit(130);
            }
        })?;
    Ok(())
}

impl Undo {
    pub(crate) fn run(&self) {
        match self {
            Undo::Process(pid) => {
                if let Some(pid) = Pid::from_raw(*pid as i32) {
                    let _ = kill_process_group(pid, Signal::KILL);
                }
            }
            Undo::Directory(path) => {
                unmount_in(path);
                detach_from(path);
                let _ = fs::remove_dir_all(path);
            }
            Undo::Setting { path, before } => {
                let _ = fs::write(path, before);
            }
        }
    }
}

/// Unmounts all mounts on entries of a directory.
fn unmount_in(dir: &Path) {
    let (Ok(outside), Ok(entries)) = (fs::metadata(dir), fs::read_dir(dir)) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // stat fails on a mount whose server is gone.
        let is_mounted = || fs::metadata(&path).map_or(true, |it| it.dev() != outside.dev());
        let mut tries = 0;
        // Killed programs take a moment to release it.
        while is_mounted() && tries < TRIES && !quietly(Command::new("umount").arg(&path)) {
            tries += 1;
            thread::sleep(PAUSE);
        }
        if is_mounted() {
            quietly(Command::new("umount").arg("-l").arg(&path));
        }
    }
}

/// Detaches loop devices whose files are in a directory.
fn detach_from(dir: &Path) {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return;
    };
    for device in devices.flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        if file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(dir)) {
            quietly(
                Command::new("losetup")
                    .arg("-d")
                    .arg(Path::new("/dev").join(device.file_name())),
            );
        }
    }
}

/// Returns whether the program succeeded. It fails if the state is already gone.
fn quietly(command: &mut Command) -> bool {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .status();
    status.is_ok_and(|status| status.success())
}

//! What has to be undone when the run ends, however it ends.
//!
//! Mounts, loop devices, servers and the work directory outlive a program that is interrupted. Each is
//! put on a stack when it is made. Its owner takes it off; what is left is undone newest first, at the
//! end of `main` or by the thread that waits for signals.
//!
//! Locks: the stack's, held while one thing is undone, so that no two threads undo the same.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// One thing to be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// A program that runs.
    Process(u32),
    Mount(PathBuf),
    Loop(PathBuf),
    Directory(PathBuf),
    /// A file that held other text before.
    Setting {
        path: PathBuf,
        before: String,
    },
}

static STACK: Mutex<Vec<Undo>> = Mutex::new(Vec::new());

fn stack() -> std::sync::MutexGuard<'static, Vec<Undo>> {
    STACK
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn push(undo: Undo) {
    stack().push(undo);
}

/// The owner has undone it.
pub(crate) fn done(undo: &Undo) {
    let mut stack = stack();
    if let Some(at) = stack.iter().rposition(|kept| kept == undo) {
        stack.remove(at);
    }
}

/// Undoes all that is left.
pub(crate) fn everything() {
    let mut stack = stack();
    while let Some(undo) = stack.pop() {
        undo.run();
    }
}

/// SIGINT, SIGTERM and SIGHUP undo everything and end the process.
pub(crate) fn on_signals() -> anyhow::Result<()> {
    let mut heard = Vec::new();
    let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        heard.push(signal);
    }
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut byte = [0];
            if std::io::Read::read_exact(&mut &reader, &mut byte).is_ok() {
                eprintln!("interrupted: cleaning up");
                everything();
                std::process::exit(130);
            }
        })?;
    Ok(())
}

impl Undo {
    fn run(&self) {
        match self {
            Undo::Process(pid) => {
                if let Some(pid) = Pid::from_raw(*pid as i32) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Undo::Mount(path) => quietly(Command::new("umount").arg("-l").arg(path)),
            Undo::Loop(path) => quietly(Command::new("losetup").arg("-d").arg(path)),
            Undo::Directory(path) => {
                let _ = std::fs::remove_dir_all(path);
            }
            Undo::Setting { path, before } => {
                let _ = std::fs::write(path, before);
            }
        }
    }
}

/// It may be gone already.
fn quietly(command: &mut Command) {
    let _ = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

//! A mount that outlives the command that made it.
//!
//! The command runs itself again, as a child with the mount in the foreground. It returns when the child reports that
//! the mount is ready. The pipe for the report is the child's standard output, so no descriptor has to be passed by
//! number.
//!
//! Running the program again is the safe way. A fork without exec keeps only the calling thread. A lock held by another
//! thread (in the allocator, in a library) stays locked for ever in the child. A fork before the first thread would
//! also be safe. But it takes unsafe code, and the volume, which may use threads, could only be opened after it.
//!
//! The child inherits the standard streams and nothing else. Otherwise it would hold locks and pipes of the calling
//! shell until the mount ends.
//!
//! Protocol: one byte when the mount is ready. End of file without it means that the child has failed. It has printed
//! the reason to standard error, and its exit status is the result.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

/// The first descriptor after the standard streams.
const FIRST_INHERITED: libc::c_uint = 3;

/// The outcome of a child process that mounts.
#[derive(Clone, Copy, Debug)]
pub enum Launched {
    /// Mounted, and served by this process.
    Ready { pid: u32 },
    /// The child ended without a mount.
    Failed(ExitStatus),
}

/// Runs `command`, which must mount in the foreground and use `Readiness`. Returns when the mount is ready or has
/// failed.
pub fn launch(mut command: Command) -> io::Result<Launched> {
    keep_to_ourselves()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut ready = [0];
    let heard = child
        .stdout
        .take()
        .is_some_and(|mut pipe| pipe.read_exact(&mut ready).is_ok());
    if heard {
        Ok(Launched::Ready { pid: child.id() })
    } else {
        Ok(Launched::Failed(child.wait()?))
    }
}

/// Sets inherited descriptors to close-on-exec, so that child programs do not inherit them. This process's own already
/// are.
fn keep_to_ourselves() -> io::Result<()> {
    // SAFETY: no descriptor is closed, and no memory is passed.
    #[allow(unsafe_code)]
    let kept = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_INHERITED,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    match kept {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The child's end of the pipe. Create it before anything is written to standard output.
#[derive(Debug)]
pub struct Readiness {
    stdout: io::Stdout,
}

impl Readiness {
    /// Leaves the session of the command's terminal, so that its interrupts do not reach this process. Also sets the
    /// program's name: without that, the process would be named after its path, `/proc/self/exe`.
    pub fn inherit() -> io::Result<Self> {
        rustix::process::setsid()?;
        rustix::thread::set_name(c"ubtrfs")?;
        Ok(Self {
            stdout: io::stdout(),
        })
    }

    /// Reports that the mount is ready, and releases the terminal, the working directory and the standard streams. An
    /// error means that the command was stopped, so the mount is no longer wanted.
    pub fn announce(mut self) -> io::Result<()> {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        std::env::set_current_dir("/")?;
        self.stdout.write_all(b"\n")?;
        self.stdout.flush()?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    }
}

//! A mount that outlives the command which made it.
//!
//! The command runs itself once more, as a child with the mount in the foreground. It returns when the child says
//! that the mount is ready. The pipe for that is the child's standard output, so no descriptor has to be passed by
//! number.
//!
//! Starting the program anew is the safe way. A fork without exec keeps only the calling thread. A lock that
//! another one held (in the allocator, in a library) stays locked for ever in the child. A fork before any thread
//! exists would do as well. But then opening the volume, which may use threads, had to wait until after it, and it
//! takes unsafe code.
//!
//! The child inherits the standard streams and nothing else. A lock or a pipe of the shell's that the command was
//! run from would else be held until the mount is gone.
//!
//! Protocol: one byte when the mount is ready. End of file without it: the child has failed, has said
//! why on standard error, and its exit status is the answer.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

/// Behind the standard streams.
const FIRST_INHERITED: libc::c_uint = 3;

/// The outcome of a child that was to mount.
#[derive(Clone, Copy, Debug)]
pub enum Launched {
    /// Mounted, and served by this process.
    Ready { pid: u32 },
    /// The child ended without a mount.
    Failed(ExitStatus),
}

/// Runs `command`, which is to mount in the foreground and to use `Readiness`, and returns when the
/// mount is ready or has failed.
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

/// Has no program that is run from here inherit a descriptor that this one has inherited; those of its own are not
/// inherited anyway.
fn keep_to_ourselves() -> io::Result<()> {
    // SAFETY: no descriptor is closed, nor is memory handed over.
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

/// The child's end. Take it before anything is written to standard output.
#[derive(Debug)]
pub struct Readiness {
    stdout: io::Stdout,
}

impl Readiness {
    /// Leaves the session of the command's terminal, so that its interrupts do not reach us, and takes the
    /// program's name. A process is called after the path that it was run by, which is `/proc/self/exe`.
    pub fn inherit() -> io::Result<Self> {
        rustix::process::setsid()?;
        rustix::thread::set_name(c"ubtrfs")?;
        Ok(Self {
            stdout: io::stdout(),
        })
    }

    /// Says that the mount is ready, and lets go of the terminal, the working directory and the standard
    /// streams. An error means that the command has been stopped meanwhile: the mount is not wanted.
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

//! The system call of a caller that waits for an answer.
//!
//! A FUSE request does not include it, and two kinds of requests are ambiguous without it. overlayfs looks up a file by
//! its handle as open_by_handle_at(2) does. A chown that changes nothing looks like the start of a write.

use std::fs;
use std::thread;
use std::time::Duration;

use ubtrfs_device::clock;

/// The flag of a kernel thread in `/proc/PID/stat`.
const PF_KTHREAD: u64 = 0x0020_0000;
/// A caller that has sent a request goes to sleep at once. A caller that is still awake after this time is not waiting.
const SLEEPS_WITHIN: Duration = Duration::from_secs(1);

/// The system calls that requests depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    OpenByHandle,
    /// A call that makes a mount.
    Mount,
    ChangeOwner,
    Other,
    /// A kernel thread, such as a thread of an NFS server, is in no system call.
    KernelThread,
}

impl SystemCall {
    /// Reads the system call of the waiting thread `pid`. Returns `None` if it cannot be read.
    pub(crate) fn of(pid: u32) -> Option<SystemCall> {
        // A process outside our pid namespace.
        if pid == 0 {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        if is_kernel_thread(&stat) {
            return Some(SystemCall::KernelThread);
        }
        let begin = clock::now();
        loop {
            let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
            if text.trim_end() != "running" {
                return parse(&text);
            }
            if clock::now() - begin > SLEEPS_WITHIN {
                return None;
            }
            thread::yield_now();
        }
    }
}

/// Returns whether this caller may find a file by its handle.
///
/// The kernel treats the name of such a file as stale, and before Linux 6.16 looks it up in the file itself.
/// open_by_handle_at(2) and NFS ignore that. overlayfs looks up the origin of each copied-up file, and answers ESTALE
/// for the copy from then on. It works without an origin that is not found. At mount time it only tests that origins
/// exist, and deletes the index entries of missing ones.
pub(crate) fn finds_by_handle(pid: u32) -> bool {
    matches!(
        SystemCall::of(pid),
        Some(SystemCall::OpenByHandle | SystemCall::Mount | SystemCall::KernelThread)
    )
}

fn is_kernel_thread(stat: &str) -> bool {
    // The name in parentheses may contain any character.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_whitespace().nth(6);
    flags.is_some_and(|flags| {
        flags
            .parse()
            .is_ok_and(|flags: u64| flags & PF_KTHREAD != 0)
    })
}

/// Parses `NUMBER ARGUMENTS STACK CODE` of `/proc/PID/syscall`.
fn parse(text: &str) -> Option<SystemCall> {
    let fields: Vec<_> = text.split_whitespace().collect();
    let number: libc::c_long = fields.first()?.parse().ok()?;
    let address = |field: Option<&&str>| {
        let digits = field?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let [.., stack, code] = fields.as_slice() else {
        return None;
    };
    let has_32_bits = [address(Some(stack))?, address(Some(code))?]
        .iter()
        .all(|&address| address >> 32 == 0);
    let of = if cfg!(target_pointer_width = "64") && has_32_bits {
        of_narrow_number(number)
    } else {
        of_number(number)
    };
    Some(of)
}

fn of_number(number: libc::c_long) -> SystemCall {
    match number {
        libc::SYS_open_by_handle_at => SystemCall::OpenByHandle,
        libc::SYS_mount | libc::SYS_fsconfig | libc::SYS_fsmount => SystemCall::Mount,
        libc::SYS_fchown | libc::SYS_fchownat => SystemCall::ChangeOwner,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown | libc::SYS_lchown => SystemCall::ChangeOwner,
        _ => SystemCall::Other,
    }
}

/// Returns the system call of a 32-bit program: by the numbers of i386 on x86-64, and of 32-bit ARM elsewhere.
fn of_narrow_number(number: libc::c_long) -> SystemCall {
    let (open_by_handle, fchownat) = if cfg!(target_arch = "x86_64") {
        (342, 298)
    } else {
        (371, 325)
    };
    match number {
        21 | 431 | 432 => SystemCall::Mount,
        16 | 95 | 182 | 198 | 207 | 212 => SystemCall::ChangeOwner,
        _ if number == open_by_handle => SystemCall::OpenByHandle,
        _ if number == fchownat => SystemCall::ChangeOwner,
        _ => SystemCall::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn call_of_a_waiting_thread_is_read() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let descriptor = reader.as_raw_fd();
        let (sender, ids) = channel();
        let waiting = thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send(id.unsigned_abs()).unwrap();
            std::io::Read::read(&mut reader, &mut [0]).unwrap()
        });
        let pid = ids.recv().unwrap();
        // Until it waits there it may be in any other call.
        let text = loop {
            let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
            let mut fields = text.split_whitespace().skip(1);
            if fields.next() == Some(&format!("{descriptor:#x}")) {
                break text;
            }
        };
        assert_eq!(parse(&text), Some(SystemCall::Other));
        assert_eq!(SystemCall::of(pid), Some(SystemCall::Other));
        drop(writer);
        waiting.join().unwrap();
    }

    #[test]
    fn calls_are_told_apart_by_the_width_of_the_program() {
        let wide = |number: libc::c_long| {
            let text =
                format!("{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 0x7ffd5e3a2c58 0x7f3c2a1b4d0e\n");
            parse(&text)
        };
        let narrow = |number: libc::c_long| {
            parse(&format!(
                "{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 0xffb3c1d0 0xf7f04589\n"
            ))
        };
        assert_eq!(
            wide(libc::SYS_open_by_handle_at),
            Some(SystemCall::OpenByHandle)
        );
        assert_eq!(wide(libc::SYS_fsconfig), Some(SystemCall::Mount));
        assert_eq!(wide(libc::SYS_fchownat), Some(SystemCall::ChangeOwner));
        assert_eq!(wide(libc::SYS_statx), Some(SystemCall::Other));
        assert_eq!(narrow(212), Some(SystemCall::ChangeOwner));
        if cfg!(target_arch = "x86_64") {
            assert_eq!(narrow(342), Some(SystemCall::OpenByHandle));
            // symlinkat(2) of a program of 32 bits.
            assert_eq!(narrow(libc::SYS_open_by_handle_at), Some(SystemCall::Other));
        }
        assert_eq!(parse(""), None);
        // One that is in no call.
        assert_eq!(parse("-1 0xffff 0xffff"), Some(SystemCall::Other));
    }

    #[test]
    fn threads_of_the_kernel_are_known_by_their_flags() {
        let nfsd = "812 (nfsd) I 2 0 0 0 -1 2129984 0 0 0 0";
        let program = "913 (nfsd) S (x) S 1 913 913 0 -1 4194304 0 0 0 0";
        assert!(is_kernel_thread(nfsd));
        assert!(!is_kernel_thread(program));
        assert!(!is_kernel_thread(""));
    }

    #[test]
    fn nobody_finds_by_handle_that_cannot_be_looked_at() {
        assert_eq!(SystemCall::of(0), None);
        assert!(!finds_by_handle(0));
        assert!(!finds_by_handle(u32::MAX));
    }
}

//! Answers in the buffer of their request, for correct and incorrect verbs.

use std::cell::Cell;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::*;
use crate::abi::{input, opcode};
use crate::request::{
    Attributes, ConnectionFlags, DirEntry, FileKind, Handle, IoctlAnswer, OpenFlags, Opened,
    ReadHow, Room, StatFs,
};

thread_local! {
    /// Whether verbs refuse to block, as on the thread of a queue.
    static HURRIED: Cell<bool> = const { Cell::new(false) };
}

/// Refuses in nonblocking mode after it has overwritten the buffer; returns wrong lengths otherwise.
struct Balky;

fn hurried(out: &mut [u8]) -> Result<()> {
    if HURRIED.get() {
        out.fill(0xee);
        return Err(Errno::WOULD_BLOCK);
    }
    Ok(())
}

fn entry(name: &[u8]) -> DirEntry<'_> {
    DirEntry {
        ino: 9,
        kind: FileKind::Regular,
        name,
        next_offset: 1,
    }
}

impl FileSystem for Balky {
    fn connection_flags(&self) -> ConnectionFlags {
        ConnectionFlags {
            posix_acl: false,
            writable: false,
            writeback_cache: false,
            idmapped: false,
        }
    }
    fn lookup(&self, _: &Context, _: NodeId, _: &[u8]) -> Result<Lookup> {
        hurried(&mut [])?;
        Err(Errno::NOENT)
    }
    fn forget(&self, _: NodeId, _: u64) {}
    fn getattr(&self, _: &Context, _: NodeId) -> Result<Attributes> {
        Err(Errno::STALE)
    }
    fn readlink(&self, _: &Context, _: NodeId, out: &mut [u8]) -> Result<usize> {
        hurried(out)?;
        Ok(usize::MAX)
    }
    fn open(&self, _: &Context, _: NodeId, _: OpenFlags) -> Result<Opened> {
        Ok(Opened::Elided)
    }
    fn read(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        _: u64,
        out: &mut [u8],
        _: &ReadHow,
    ) -> Result<usize> {
        hurried(out)?;
        out.fill(b'r');
        Ok(usize::MAX)
    }
    fn release(&self, _: &Context, _: NodeId, _: Handle) -> Result<()> {
        Ok(())
    }
    fn opendir(&self, _: &Context, _: NodeId) -> Result<Opened> {
        Ok(Opened::Elided)
    }
    fn readdir(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        if offset == 0 {
            assert_eq!(sink.push(&entry(b"a")), Room::Taken);
        }
        hurried(&mut [])
    }
    fn readdirplus(
        &self,
        _: &Context,
        _: NodeId,
        _: Handle,
        _: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        while sink.push(&entry(b"a"), None) == Room::Taken {}
        Ok(())
    }
    fn releasedir(&self, _: &Context, _: NodeId, _: Handle) -> Result<()> {
        Ok(())
    }
    fn getxattr(&self, _: &Context, _: NodeId, name: &[u8], out: &mut [u8]) -> Result<usize> {
        hurried(out)?;
        assert_eq!(name, b"user.a");
        Ok(7)
    }
    fn listxattr(&self, _: &Context, _: NodeId, _: &mut [u8]) -> Result<usize> {
        Ok(usize::MAX)
    }
    fn statfs(&self, _: &Context, _: NodeId) -> Result<StatFs> {
        Err(Errno::IO)
    }
    fn access(&self, _: &Context, _: NodeId, _: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }
    fn lseek(&self, _: &Context, _: NodeId, _: Handle, _: u64, _: SeekFor) -> Result<u64> {
        Ok(u64::MAX)
    }
    fn ioctl(
        &self,
        _: &Context,
        _: NodeId,
        _: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        hurried(out)?;
        assert_eq!(input, b"in");
        out.fill(b'o');
        Ok(IoctlAnswer::of(usize::MAX))
    }
}

fn server() -> Server<Balky> {
    Server {
        retrievals: Arc::default(),
        file_system: Balky,
        negotiated: Negotiated {
            minor: 45,
            setxattr_ext: true,
            elide_open: true,
            elide_opendir: false,
            uring: false,
            request_bytes: 4096,
            surplus_threads: 80,
        },
    }
}

fn header(operation: u32) -> InHeader {
    InHeader {
        opcode: operation,
        ..InHeader::new_zeroed()
    }
}

/// Sends a request in nonblocking mode, and again in blocking mode if that was refused.
fn ask(
    operation: u32,
    fixed: &(impl IntoBytes + Immutable),
    payload: &[u8],
    buffer: &mut [u8],
) -> Outcome {
    let server = server();
    let header = header(operation);
    buffer[..payload.len()].copy_from_slice(payload);
    HURRIED.set(true);
    let first = server.answer(&header, fixed.as_bytes(), buffer, payload.len());
    HURRIED.set(false);
    match first {
        Outcome::WouldBlock(pending) => {
            server.resume(pending, &header, fixed.as_bytes(), buffer, payload.len())
        }
        done => done,
    }
}

fn answer_len(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Answer(len) => *len,
        other => panic!("{other:?}"),
    }
}

fn failure(outcome: &Outcome) -> Errno {
    match outcome {
        Outcome::Failure(error) => *error,
        other => panic!("{other:?}"),
    }
}

// ANSWER-1, REQ-1, REQ-6
#[test]
fn a_refused_request_is_answered_in_full_by_the_next_thread() {
    let mut buffer = [0; 4096];
    let failed = ask(opcode::LOOKUP, &(), b"name\0", &mut buffer);
    assert_eq!(failure(&failed), Errno::NOENT);
    // The name was in the memory that the first attempt overwrote.
    let wanted = input::GetxattrIn {
        size: 100,
        padding: 0,
    };
    let found = ask(opcode::GETXATTR, &wanted, b"user.a\0", &mut buffer);
    assert_eq!(answer_len(&found), 7);
    let wanted = input::IoctlIn {
        in_size: 2,
        out_size: 5,
        ..input::IoctlIn::new_zeroed()
    };
    let done = ask(opcode::IOCTL, &wanted, b"in", &mut buffer);
    assert_eq!(answer_len(&done), size_of::<output::IoctlOut>() + 5);
    assert_eq!(buffer[16..21], *b"ooooo");
}

// ANSWER-2
#[test]
fn an_answer_is_never_longer_than_asked_for() {
    let mut buffer = [0; 8192];
    let wanted = input::ReadIn {
        size: 100,
        ..input::ReadIn::new_zeroed()
    };
    assert_eq!(
        answer_len(&ask(opcode::READ, &wanted, b"", &mut buffer)),
        100
    );
    let listed = answer_len(&ask(opcode::READDIRPLUS, &wanted, b"", &mut buffer));
    assert!(listed <= 100);
    let wanted = input::ReadIn {
        size: u32::MAX,
        ..input::ReadIn::new_zeroed()
    };
    let read = answer_len(&ask(opcode::READ, &wanted, b"", &mut buffer));
    assert_eq!(read, buffer.len());
    let link = answer_len(&ask(opcode::READLINK, &(), b"", &mut buffer));
    assert_eq!(link, LINK_MAX_BYTES);
    let wanted = input::GetxattrIn {
        size: 10,
        padding: 0,
    };
    let failed = ask(opcode::LISTXATTR, &wanted, b"", &mut buffer);
    assert_eq!(failure(&failed), Errno::RANGE);
}

// REQ-4
#[test]
fn entries_taken_before_a_refusal_are_the_answer() {
    let mut buffer = [0; 4096];
    let mut wanted = input::ReadIn {
        size: 4096,
        ..input::ReadIn::new_zeroed()
    };
    HURRIED.set(true);
    let server = server();
    let header = header(opcode::READDIR);
    let first = server.answer(&header, wanted.as_bytes(), &mut buffer, 0);
    assert_eq!(answer_len(&first), 32);
    wanted.offset = 1;
    let next = server.answer(&header, wanted.as_bytes(), &mut buffer, 0);
    assert!(matches!(next, Outcome::WouldBlock(Pending::Fill(_))));
    HURRIED.set(false);
}

#[test]
fn an_empty_room_for_an_xattr_gets_its_length() {
    let mut buffer = [0; 64];
    let wanted = input::GetxattrIn::new_zeroed();
    let found = ask(opcode::GETXATTR, &wanted, b"user.a\0", &mut buffer);
    assert_eq!(answer_len(&found), size_of::<output::GetxattrOut>());
    assert_eq!(buffer[..4], 7u32.to_ne_bytes());
}

#[test]
fn opens_are_elided_where_the_kernel_knows_of_it() {
    let mut buffer = [0; 64];
    let asked = input::OpenIn::new_zeroed();
    let opened = ask(opcode::OPEN, &asked, b"", &mut buffer);
    assert_eq!(failure(&opened), Errno::NOSYS);
    let opened = ask(opcode::OPENDIR, &asked, b"", &mut buffer);
    assert_eq!(answer_len(&opened), size_of::<output::OpenOut>());
}

#[test]
fn requests_that_are_not_understood_are_refused_and_those_without_answer_get_none() {
    let mut buffer = [0; 64];
    let outcome = ask(4000, &(), b"", &mut buffer);
    assert_eq!(failure(&outcome), Errno::NOSYS);
    let outcome = ask(
        opcode::INTERRUPT,
        &input::InterruptIn { unique: 1 },
        b"",
        &mut buffer,
    );
    assert_eq!(failure(&outcome), Errno::NOSYS);
    // A short fixed part, an unterminated name, a payload larger than the buffer.
    let outcome = ask(opcode::READ, &[0u8; 39], b"", &mut buffer);
    assert_eq!(failure(&outcome), Errno::INVAL);
    let outcome = ask(opcode::LOOKUP, &(), b"name", &mut buffer);
    assert_eq!(failure(&outcome), Errno::INVAL);
    let outcome = server().answer(&header(opcode::LOOKUP), &[], &mut buffer, 65);
    assert_eq!(failure(&outcome), Errno::INVAL);
    let forget = input::ForgetIn { nlookup: 1 };
    assert!(matches!(
        ask(opcode::FORGET, &forget, b"", &mut buffer),
        Outcome::Silence
    ));
    let batch = input::BatchForgetIn { count: 9, dummy: 0 };
    let outcome = ask(opcode::BATCH_FORGET, &batch, b"", &mut buffer);
    assert!(matches!(outcome, Outcome::Failure(_) | Outcome::Silence));
    let seek = input::LseekIn {
        offset: 5,
        whence: 3,
        ..input::LseekIn::new_zeroed()
    };
    let outcome = ask(opcode::LSEEK, &seek, b"", &mut buffer);
    assert_eq!(failure(&outcome), Errno::OVERFLOW);
}

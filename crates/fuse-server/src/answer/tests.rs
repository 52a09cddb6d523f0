//! Answers in the buffer of their request, for correct and incorrect file systems.

use std::cell::Cell;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::*;
use crate::abi::{input, opcode};
use crate::request::{
    AnswerBuffer, ConnectionFlags, DirEntry, DirPlusSink, DirSink, FileKind, IoctlAnswer, Opened,
    Room,
};

thread_local! {
    /// Whether requests refuse to block, as on the thread of a queue.
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
    fn perform(
        &self,
        _: &Context,
        _: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> Result<Answer> {
        match *operation {
            Operation::Lookup { .. } => {
                hurried(&mut [])?;
                Err(Errno::NOENT)
            }
            Operation::Open { .. } | Operation::Opendir => Ok(Answer::Opened(Opened::Elided)),
            Operation::Read { .. } => {
                hurried(out.bytes())?;
                out.bytes().fill(b'r');
                Ok(Answer::Len(usize::MAX))
            }
            Operation::Readlink => {
                hurried(out.bytes())?;
                Ok(Answer::Len(usize::MAX))
            }
            Operation::Readdir { offset, .. } => {
                if offset == 0 {
                    assert_eq!(DirSink::push(out, &entry(b"a")), Room::Taken);
                }
                hurried(&mut []).map(|()| Answer::Done)
            }
            Operation::Readdirplus { .. } => {
                while DirPlusSink::push(out, &entry(b"a"), None) == Room::Taken {}
                Ok(Answer::Done)
            }
            Operation::Getxattr { name, .. } => {
                hurried(out.bytes())?;
                assert_eq!(name, b"user.a");
                Ok(Answer::Len(7))
            }
            Operation::Listxattr { .. } => Ok(Answer::Len(usize::MAX)),
            Operation::Write { .. } => Ok(Answer::Written(usize::MAX)),
            Operation::CopyFileRange { .. } => Ok(Answer::Copied(u64::MAX)),
            Operation::Lseek { .. } => Ok(Answer::Offset(u64::MAX)),
            Operation::Ioctl { input, .. } => {
                hurried(out.bytes())?;
                assert_eq!(input, b"in");
                out.bytes().fill(b'o');
                Ok(Answer::Ioctl(IoctlAnswer::of(usize::MAX)))
            }
            Operation::Statfs => panic!("as the test wants it"),
            _ => Err(Errno::NOSYS),
        }
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

// ANSWER-2
#[test]
fn a_write_or_copy_never_answers_more_than_asked_for() {
    let mut buffer = [0; 4096];
    let wanted = input::WriteIn {
        size: 3,
        ..input::WriteIn::new_zeroed()
    };
    let done = ask(opcode::WRITE, &wanted, b"abc", &mut buffer);
    assert_eq!(answer_len(&done), size_of::<output::WriteOut>());
    assert_eq!(buffer[..4], 3u32.to_ne_bytes());
    // The narrow answer has 32 bits.
    for (len, narrow) in [(5, 5), (u64::MAX, 1 << 30)] {
        let wanted = input::CopyFileRangeIn {
            len,
            ..input::CopyFileRangeIn::new_zeroed()
        };
        let done = ask(opcode::COPY_FILE_RANGE, &wanted, b"", &mut buffer);
        assert_eq!(answer_len(&done), size_of::<output::WriteOut>());
        assert_eq!(buffer[..4], u32::to_ne_bytes(narrow));
        let done = ask(opcode::COPY_FILE_RANGE_64, &wanted, b"", &mut buffer);
        assert_eq!(answer_len(&done), size_of::<output::CopyFileRangeOut>());
        assert_eq!(buffer[..8], len.to_ne_bytes());
    }
}

#[test]
fn a_panic_fails_its_request() {
    let mut buffer = [0; 4096];
    let failed = ask(opcode::STATFS, &(), b"", &mut buffer);
    assert_eq!(failure(&failed), Errno::IO);
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
    assert!(matches!(next, Outcome::WouldBlock(_)));
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

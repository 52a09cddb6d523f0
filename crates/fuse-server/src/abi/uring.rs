//! The headers of requests and answers in FUSE over io_uring (from 7.42).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::sizes;

/// The first of an entry's two buffers. The second one has the payload of request and answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ReqHeader {
    /// `InHeader` of a request, `OutHeader` of an answer.
    pub(crate) in_out: [u8; 128],
    /// The fixed part of a request.
    pub(crate) op_in: [u8; 128],
    pub(crate) ring_ent_in_out: EntInOut,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EntInOut {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) payload_sz: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

/// The contents of a submission's command area.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CmdReq {
    pub(crate) flags: u64,
    pub(crate) commit_id: u64,
    pub(crate) qid: u16,
    pub(crate) padding: [u8; 6],
}

/// The address and length of an entry's buffer, as `struct iovec` of readv(2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct IoVec {
    pub(crate) base: usize,
    pub(crate) len: usize,
}

sizes!(ReqHeader = 288, EntInOut = 32, CmdReq = 24);

pub(crate) const CMD_REGISTER: u32 = 1;
pub(crate) const CMD_COMMIT_AND_FETCH: u32 = 2;

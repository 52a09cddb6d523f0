//! The frame around LZO segments: a 4-byte total, then one segment for each sector of data, preceded by its 4-byte
//! length.
//!
//! Invariants
//! - LZO-1: a length field never crosses a sector boundary. If fewer than four bytes are left, the writer pads with
//!   zeros up to the boundary, even after the last segment.
//! - LZO-2: the total includes itself, every length, every segment and this padding, but not the extent's padding.
//! - LZO-3: an inline extent has exactly one segment.
//!
//! A reader accepts segments of any decompressed length, as in the kernel; only the writer splits by sectors.
//! Not here: the segments themselves (`lzo1x`).

use std::cell::RefCell;

use super::CodecError;
use super::lzo1x::{self, Encoder, LzoError};

const LEN_BYTES: usize = 4;

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new());
}

pub(super) fn decompress(
    input: &[u8],
    out: &mut [u8],
    sectorsize: usize,
) -> Result<usize, CodecError> {
    let frame = frame(input)?;
    let mut at = LEN_BYTES;
    let mut held = 0;
    while at < frame.len() {
        let to_boundary = sectorsize - at % sectorsize;
        if to_boundary < LEN_BYTES {
            at += to_boundary;
            continue;
        }
        let segment = segment(frame, at)?;
        held += decode(segment, at, &mut out[held..])?;
        at += LEN_BYTES + segment.len();
    }
    Ok(held)
}

pub(super) fn decompress_inline(input: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
    let frame = frame(input)?;
    let segment = segment(frame, LEN_BYTES)?;
    // LZO-3
    let extra = frame.len() - 2 * LEN_BYTES - segment.len();
    if extra != 0 {
        return Err(CodecError::LzoInlineTail {
            total: frame.len(),
            extra,
        });
    }
    decode(segment, LEN_BYTES, out)
}

/// Returns the part of the input covered by the total.
fn frame(input: &[u8]) -> Result<&[u8], CodecError> {
    let len = input.len();
    let total = read_len(input, 0).ok_or(CodecError::LzoHeader { len })?;
    if total < LEN_BYTES {
        return Err(CodecError::LzoTotal { total, len });
    }
    input
        .get(..total)
        .ok_or(CodecError::LzoTotal { total, len })
}

/// Returns the segment with its length field at `at`.
fn segment(frame: &[u8], at: usize) -> Result<&[u8], CodecError> {
    let len = read_len(frame, at).ok_or(CodecError::LzoHeader { len: frame.len() })?;
    let rest = &frame[at + LEN_BYTES..];
    // CODEC-1
    rest.get(..len).ok_or(CodecError::LzoSegment {
        at,
        segment: len,
        left: rest.len(),
    })
}

fn read_len(bytes: &[u8], at: usize) -> Option<usize> {
    let (field, _) = bytes.get(at..)?.split_first_chunk::<LEN_BYTES>()?;
    usize::try_from(u32::from_le_bytes(*field)).ok()
}

fn decode(segment: &[u8], at: usize, out: &mut [u8]) -> Result<usize, CodecError> {
    let room = out.len();
    lzo1x::decode(segment, out).map_err(|source| match source {
        LzoError::OutputOverrun => CodecError::TooLong { room },
        source => CodecError::Lzo { at, source },
    })
}

/// Returns the length of the frame, or None if it does not fit.
pub(super) fn compress(
    input: &[u8],
    out: &mut [u8],
    sectorsize: usize,
    inline: bool,
) -> Option<usize> {
    let mut at = LEN_BYTES;
    ENCODER.with_borrow_mut(|encoder| {
        for sector in input.chunks(sectorsize) {
            let segment = encoder.encode(sector);
            put(out, at, &u32::try_from(segment.len()).ok()?.to_le_bytes())?;
            put(out, at + LEN_BYTES, segment)?;
            at += LEN_BYTES + segment.len();
            let to_boundary = at.next_multiple_of(sectorsize) - at;
            // LZO-1
            if !inline && to_boundary < LEN_BYTES {
                put(out, at, &[0; LEN_BYTES][..to_boundary])?;
                at += to_boundary;
            }
        }
        // LZO-2
        put(out, 0, &u32::try_from(at).ok()?.to_le_bytes())?;
        Some(at)
    })
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    out.get_mut(at..)?
        .get_mut(..bytes.len())?
        .copy_from_slice(bytes);
    Some(())
}

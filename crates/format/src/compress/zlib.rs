//! zlib extents: one zlib stream, followed by padding.
//!
//! Not here: padding and the decision whether compression pays off (`compress`).

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use super::CodecError;

const DEFAULT_LEVEL: i32 = 3;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// The compressor for the last used level, because a compressor has a fixed level.
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

pub(super) fn decompress(input: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
    let room = out.len();
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        decompressor
            .zlib_decompress(input, out)
            .map_err(|error| match error {
                DecompressionError::BadData => CodecError::Zlib,
                DecompressionError::InsufficientSpace => CodecError::TooLong { room },
            })
    })
}

/// Returns the length of the stream, or None if it does not fit.
pub(super) fn compress(level: i32, input: &[u8], out: &mut [u8]) -> Option<usize> {
    let level = if level == 0 {
        DEFAULT_LEVEL
    } else {
        level.clamp(1, 9)
    };
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(used, _)| *used != level) {
            *slot = Some((level, Compressor::new(CompressionLvl::new(level).ok()?)));
        }
        let (_, compressor) = slot.as_mut()?;
        compressor.zlib_compress(input, out).ok()
    })
}

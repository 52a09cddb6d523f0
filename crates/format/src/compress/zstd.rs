//! zstd extents: one frame, followed by padding.
//!
//! A one-shot call needs the exact frame, so the padding is cut off first, using the lengths in the frame. Decoding
//! is directly into the output: there is no window buffer, whatever size the frame header requests.
//!
//! Not here: padding and the decision whether compression pays off (`compress`).

use std::cell::RefCell;

use zstd_safe::{CCtx, DCtx, find_frame_compressed_size};

use super::CodecError;

const DEFAULT_LEVEL: i32 = 3;

/// The range of levels that the kernel accepts.
const MIN_LEVEL: i32 = -15;
const MAX_LEVEL: i32 = 15;

/// `ZSTD_error_dstSize_tooSmall` as a return code.
const DST_TOO_SMALL: usize = 70_usize.wrapping_neg();

thread_local! {
    /// CODEC-1: it decodes into the output, without a separate window.
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

pub(super) fn decompress(input: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
    let room = out.len();
    let error = |code| match code {
        DST_TOO_SMALL => CodecError::TooLong { room },
        code => CodecError::Zstd { code },
    };
    let frame_len = find_frame_compressed_size(input).map_err(error)?;
    let frame = input.get(..frame_len).unwrap_or(input);
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = DCtx::try_create();
        }
        let context = slot.as_mut().ok_or(CodecError::NoMemory)?;
        context.decompress(out, frame).map_err(error)
    })
}

/// Returns the length of the frame, or None if it does not fit.
///
/// The frame contains its content size, which for at most 128 KiB keeps the window within the kernel's limit.
pub(super) fn compress(
    level: i32,
    input: &[u8],
    out: &mut [u8],
) -> Result<Option<usize>, CodecError> {
    let level = if level == 0 {
        DEFAULT_LEVEL
    } else {
        level.clamp(MIN_LEVEL, MAX_LEVEL)
    };
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = CCtx::try_create();
        }
        let context = slot.as_mut().ok_or(CodecError::NoMemory)?;
        match context.compress(out, input, level) {
            Ok(taken) => Ok(Some(taken)),
            Err(DST_TOO_SMALL) => Ok(None),
            Err(code) => Err(CodecError::Zstd { code }),
        }
    })
}

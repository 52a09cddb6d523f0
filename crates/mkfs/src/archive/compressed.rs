//! Compressed archives: detection by magic bytes, and streaming decompression.
//!
//! Memory: a decoder needs as much as the archive's window, up to `MAX_DECODER_BYTES`. An archive that needs more is
//! refused.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use liblzma::stream::{CONCATENATED, Stream};
use zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

#[cfg(test)]
mod tests;

/// `xz -9` takes 65 MiB, `zstd --ultra -22` and `zstd --long` 128 MiB.
const MAX_DECODER_BYTES: u64 = 160 << 20;
/// The zstd library's own limit for streams, 128 MiB.
const MAX_ZSTD_WINDOW_LOG: u32 = 27;
const INPUT_BYTES: usize = 256 << 10;
/// Length of the longest magic.
pub(crate) const MAGIC_BYTES: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveFormat {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl ArchiveFormat {
    /// Detects the format of an archive. Returns None if it is not compressed, or in an unknown format.
    pub(crate) fn of(start: &[u8]) -> Option<ArchiveFormat> {
        let known: [(&[u8], ArchiveFormat); 4] = [
            (b"\x1f\x8b", ArchiveFormat::Gzip),
            (b"\x28\xb5\x2f\xfd", ArchiveFormat::Zstd),
            (b"\xfd7zXZ\0", ArchiveFormat::Xz),
            (b"BZh", ArchiveFormat::Bzip2),
        ];
        let mut known = known.into_iter();
        let found = known.find(|(magic, _)| start.starts_with(magic));
        found.map(|(_, format)| format)
    }

    fn name(self) -> &'static str {
        match self {
            ArchiveFormat::Gzip => "gzip",
            ArchiveFormat::Zstd => "zstd",
            ArchiveFormat::Xz => "xz",
            ArchiveFormat::Bzip2 => "bzip2",
        }
    }
}

/// The decompressed bytes of an archive.
pub(crate) struct ArchiveDecoder<'a> {
    format: ArchiveFormat,
    bytes: Box<dyn Read + 'a>,
}

impl fmt::Debug for ArchiveDecoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArchiveDecoder({})", self.format.name())
    }
}

impl<'a> ArchiveDecoder<'a> {
    /// Reads `input` from its current position. Concatenated streams form one archive.
    pub(crate) fn new(
        format: ArchiveFormat,
        input: impl Read + 'a,
    ) -> io::Result<ArchiveDecoder<'a>> {
        let input = BufReader::with_capacity(INPUT_BYTES, input);
        let bytes: Box<dyn Read + 'a> = match format {
            ArchiveFormat::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            ArchiveFormat::Zstd => Box::new(ZstdDecoder::new(input)?),
            ArchiveFormat::Xz => {
                let stream = Stream::new_stream_decoder(MAX_DECODER_BYTES, CONCATENATED);
                let decoder = liblzma::bufread::XzDecoder::new_stream(input, stream?);
                Box::new(decoder)
            }
            ArchiveFormat::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
        };
        Ok(ArchiveDecoder { format, bytes })
    }
}

impl Read for ArchiveDecoder<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buf).map_err(|error| {
            let name = self.format.name();
            io::Error::new(error.kind(), format!("{name}: {error}"))
        })
    }
}

/// Concatenated zstd frames.
struct ZstdDecoder<R> {
    input: R,
    context: DCtx<'static>,
    /// Whether the input may end here.
    is_between_frames: bool,
}

impl<R: BufRead> ZstdDecoder<R> {
    fn new(input: R) -> io::Result<ZstdDecoder<R>> {
        let mut context = DCtx::create();
        let limit = DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG);
        context.set_parameter(limit).map_err(zstd_error)?;
        Ok(ZstdDecoder {
            input,
            context,
            is_between_frames: true,
        })
    }
}

fn zstd_error(code: ErrorCode) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        zstd_safe::get_error_name(code).to_owned(),
    )
}

impl<R: BufRead> Read for ZstdDecoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let bytes = self.input.fill_buf()?;
            let is_end = bytes.is_empty();
            if is_end && self.is_between_frames {
                return Ok(0);
            }
            let mut source = InBuffer::around(bytes);
            let mut output = OutBuffer::around(&mut *buf);
            let decompressed = self.context.decompress_stream(&mut output, &mut source);
            let left = decompressed.map_err(zstd_error)?;
            let (read, written) = (source.pos(), output.pos());
            self.input.consume(read);
            self.is_between_frames = left == 0;
            if written > 0 || buf.is_empty() {
                return Ok(written);
            }
            // The decoder has no buffered output left and needs input.
            if is_end && !self.is_between_frames {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

//! LZO1X streams: a decoder for all of them and a fast encoder.
//!
//! A stream is a sequence of instructions. Each copies a match from the output, `distance` bytes back, and then up to
//! three literals, with their count in the low bits. Otherwise it is a longer run of literals. The meaning of an
//! opcode below 16 depends on the preceding literals (`state`: 0 to 3 after a match, 4 after a run). The end is a
//! match of length 3 at distance 0x4000. The format is described in the kernel's `Documentation/staging/lzo.rst`. Its
//! version-1 extension (first byte 17) is never used by btrfs and fails as an invalid match.
//!
//! Invariants
//! - LZO1X-1: `ip <= src.len()` and `op <= dst.len()` always; every count is checked against the remaining space.
//!
//! Not here: the frame around segments (`lzo`).

#[cfg(test)]
mod tests;

/// The reason why a segment cannot be decoded.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LzoError {
    #[error("input ends inside an instruction")]
    InputOverrun,
    #[error("output is longer than the room for it")]
    OutputOverrun,
    #[error("match starts {distance} bytes back with {written} written")]
    Lookbehind { distance: usize, written: usize },
    #[error("end marker of length {length}")]
    EndMarker { length: usize },
    #[error("{left} bytes follow the end marker")]
    Trailing { left: usize },
}

/// Maximum distance of each match form, and the base distance of the longest form.
const M2_MAX_DISTANCE: usize = 0x800;
const M3_MAX_DISTANCE: usize = 0x4000;
const M4_BASE: usize = 0x4000;
const M4_MAX_DISTANCE: usize = 0xbfff;

/// Maximum match length of each form without a length extension.
const M2_MAX_LEN: usize = 8;
const M3_MAX_LEN: usize = 33;
const M4_MAX_LEN: usize = 9;

/// Number of bytes copied at once if both sides have enough space.
const BURST: usize = 16;

/// Decodes one segment to the start of `dst` and returns its length; bytes after it may be overwritten.
pub(super) fn decode(src: &[u8], dst: &mut [u8]) -> Result<usize, LzoError> {
    let mut stream = Decoder {
        src,
        ip: 0,
        dst,
        op: 0,
    };
    let mut state = 0;
    if let Some(&first @ 18..) = src.first() {
        stream.ip = 1;
        let run = usize::from(first) - 17;
        stream.literals(run)?;
        state = run.min(4);
    }
    loop {
        let opcode = usize::from(stream.byte()?);
        let (distance, length, after) = match opcode {
            0..16 if state == 0 => {
                let run = if opcode == 0 {
                    stream.extension(15)?
                } else {
                    opcode
                };
                stream.literals(run.saturating_add(3))?;
                state = 4;
                continue;
            }
            0..16 => {
                let distance = (opcode >> 2) + (usize::from(stream.byte()?) << 2) + 1;
                if state == 4 {
                    (distance + M2_MAX_DISTANCE, 3, opcode & 3)
                } else {
                    (distance, 2, opcode & 3)
                }
            }
            64.. => {
                let distance = ((opcode >> 2) & 7) + (usize::from(stream.byte()?) << 3) + 1;
                (distance, (opcode >> 5) + 1, opcode & 3)
            }
            32..64 => {
                let short = opcode & 31;
                let length = if short == 0 {
                    stream.extension(31)?
                } else {
                    short
                };
                let operand = stream.operand()?;
                ((operand >> 2) + 1, length.saturating_add(2), operand & 3)
            }
            16..32 => {
                let short = opcode & 7;
                let length = if short == 0 {
                    stream.extension(7)?
                } else {
                    short
                };
                let operand = stream.operand()?;
                let distance = ((opcode & 8) << 11) + (operand >> 2) + M4_BASE;
                let length = length.saturating_add(2);
                if distance == M4_BASE {
                    return stream.end(length);
                }
                (distance, length, operand & 3)
            }
        };
        stream.copy_match(distance, length)?;
        stream.literals(after)?;
        state = after;
    }
}

struct Decoder<'a> {
    src: &'a [u8],
    ip: usize,
    dst: &'a mut [u8],
    op: usize,
}

impl Decoder<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, LzoError> {
        let byte = *self.src.get(self.ip).ok_or(LzoError::InputOverrun)?;
        self.ip += 1;
        Ok(byte)
    }

    #[inline]
    fn operand(&mut self) -> Result<usize, LzoError> {
        let rest = &self.src[self.ip..];
        let (bytes, _) = rest
            .split_first_chunk::<2>()
            .ok_or(LzoError::InputOverrun)?;
        self.ip += 2;
        Ok(usize::from(u16::from_le_bytes(*bytes)))
    }

    /// Reads an extended length: 255 for each zero byte, plus the first nonzero byte, plus `base`.
    fn extension(&mut self, base: usize) -> Result<usize, LzoError> {
        let rest = &self.src[self.ip..];
        let zeros = rest
            .iter()
            .position(|&byte| byte != 0)
            .ok_or(LzoError::InputOverrun)?;
        self.ip += zeros + 1;
        Ok(zeros
            .saturating_mul(255)
            .saturating_add(base + usize::from(rest[zeros])))
    }

    #[inline]
    fn literals(&mut self, run: usize) -> Result<(), LzoError> {
        let src = &self.src[self.ip..];
        let dst = &mut self.dst[self.op..];
        if run <= BURST
            && let (Some((from, _)), Some((to, _))) = (
                src.split_first_chunk::<BURST>(),
                dst.split_first_chunk_mut::<BURST>(),
            )
        {
            *to = *from;
        } else {
            // LZO1X-1
            let from = src.get(..run).ok_or(LzoError::InputOverrun)?;
            let to = dst.get_mut(..run).ok_or(LzoError::OutputOverrun)?;
            to.copy_from_slice(from);
        }
        self.ip += run;
        self.op += run;
        Ok(())
    }

    #[inline]
    fn copy_match(&mut self, distance: usize, length: usize) -> Result<(), LzoError> {
        let Some(from) = self.op.checked_sub(distance) else {
            return Err(LzoError::Lookbehind {
                distance,
                written: self.op,
            });
        };
        let (done, room) = self.dst.split_at_mut(self.op);
        if length <= BURST
            && let (Some((source, _)), Some((to, _))) = (
                done[from..].split_first_chunk::<BURST>(),
                room.split_first_chunk_mut::<BURST>(),
            )
        {
            *to = *source;
        } else if length > room.len() {
            return Err(LzoError::OutputOverrun);
        } else if distance >= length {
            room[..length].copy_from_slice(&done[from..from + length]);
        } else {
            self.repeat(from, distance, length);
        }
        self.op += length;
        Ok(())
    }

    /// Copies a match that overlaps its own output: a period of `distance` bytes, doubled until it is long enough.
    fn repeat(&mut self, from: usize, distance: usize, length: usize) {
        let mut done = 0;
        while done < length {
            let period = (distance + done).min(length - done);
            self.dst.copy_within(from..from + period, self.op + done);
            done += period;
        }
    }

    fn end(&self, length: usize) -> Result<usize, LzoError> {
        let left = self.src.len() - self.ip;
        match (length, left) {
            (3, 0) => Ok(self.op),
            (3, left) => Err(LzoError::Trailing { left }),
            (length, _) => Err(LzoError::EndMarker { length }),
        }
    }
}

const HASH_BITS: u32 = 12;
const MIN_MATCH: usize = 4;

/// Maximum input length, so that positions fit into the table.
const MAX_SEGMENT: usize = 1 << 16;

/// A greedy encoder with one candidate per hash, and reusable buffers.
pub(super) struct Encoder {
    table: Box<[u16; 1 << HASH_BITS]>,
    out: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            table: Box::new([0; 1 << HASH_BITS]),
            out: Vec::new(),
        }
    }

    /// Encodes one segment; the result is valid until the next call.
    ///
    /// # Panics
    /// If `src` is longer than the largest sector.
    pub(super) fn encode(&mut self, src: &[u8]) -> &[u8] {
        assert!(src.len() <= MAX_SEGMENT, "a segment is at most a sector");
        self.table.fill(0);
        self.out.clear();
        let mut literals_from = 0;
        let mut at = 1;
        while let Some(window) = src.get(at..).and_then(<[u8]>::first_chunk::<MIN_MATCH>) {
            let slot = &mut self.table[hash(*window)];
            let candidate = usize::from(*slot);
            *slot = at as u16;
            let distance = at - candidate;
            if distance > M4_MAX_DISTANCE || &src[candidate..candidate + MIN_MATCH] != window {
                // Skips through incompressible data in growing steps.
                at += 1 + ((at - literals_from) >> 5);
                continue;
            }
            let length =
                MIN_MATCH + common_prefix(&src[candidate + MIN_MATCH..], &src[at + MIN_MATCH..]);
            self.put_literals(&src[literals_from..at]);
            self.put_match(distance, length);
            at += length;
            literals_from = at;
        }
        self.put_literals(&src[literals_from..]);
        self.out.extend_from_slice(&[0x11, 0, 0]);
        &self.out
    }

    fn put_literals(&mut self, run: &[u8]) {
        match (self.out.len(), run.len()) {
            (_, 0) => {}
            (0, count @ ..=238) => self.out.push(17 + count as u8),
            // The low two bits of the preceding match, in its second-to-last byte in every form.
            (behind @ 2.., count @ ..=3) => self.out[behind - 2] |= count as u8,
            (_, count @ ..=18) => self.out.push(count as u8 - 3),
            (_, count) => {
                self.out.push(0);
                self.put_extension(count - 18);
            }
        }
        self.out.extend_from_slice(run);
    }

    fn put_match(&mut self, distance: usize, length: usize) {
        let back = distance - 1;
        if length <= M2_MAX_LEN && distance <= M2_MAX_DISTANCE {
            self.out
                .push((((length - 1) << 5) | ((back & 7) << 2)) as u8);
            self.out.push((back >> 3) as u8);
            return;
        }
        let (opcode, max_len, operand) = if distance <= M3_MAX_DISTANCE {
            (32, M3_MAX_LEN, back)
        } else {
            let beyond = distance - M4_BASE;
            (16 | ((beyond >> 11) & 8) as u8, M4_MAX_LEN, beyond & 0x3fff)
        };
        if length <= max_len {
            self.out.push(opcode | (length - 2) as u8);
        } else {
            self.out.push(opcode);
            self.put_extension(length - max_len);
        }
        self.out
            .extend_from_slice(&((operand << 2) as u16).to_le_bytes());
    }

    fn put_extension(&mut self, mut rest: usize) {
        while rest > 255 {
            self.out.push(0);
            rest -= 255;
        }
        self.out.push(rest as u8);
    }
}

fn hash(window: [u8; MIN_MATCH]) -> usize {
    (u32::from_le_bytes(window).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut same = 0;
    for (x, y) in a_words.iter().zip(b_words) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return same + (differing.trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    same + a[same..]
        .iter()
        .zip(&b[same..])
        .take_while(|(x, y)| x == y)
        .count()
}

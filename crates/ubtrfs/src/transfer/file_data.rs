//! Reading files for copying: finding data ranges, and continuing after damage.
//!
//! Damage costs the sectors that are invalid on all mirrors, not the rest of the file. They read as zeros, and the
//! copier reports them, so that a damaged copy is not mistaken for a good one.

use std::ops::Range;

use ubtrfs_fs::{Error, FileId, Volume};

/// The size of reads.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// The data ranges of a file, in order, up to its size.
#[derive(Debug)]
pub(crate) struct DataRanges<'v> {
    volume: &'v Volume,
    id: FileId,
    at: u64,
}

impl<'v> DataRanges<'v> {
    pub(crate) fn of(volume: &'v Volume, id: FileId) -> DataRanges<'v> {
        DataRanges { volume, id, at: 0 }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Range<u64>>, Error> {
        let Some(start) = self.volume.seek_data(self.id, self.at)? else {
            return Ok(None);
        };
        let end = self.volume.seek_hole(self.id, start)?.unwrap_or(start);
        self.at = end;
        Ok((start < end).then_some(start..end))
    }
}

/// A range of a file that could not be read.
#[derive(Debug)]
pub(crate) struct Damage {
    /// Offsets in the file, in bytes.
    pub(crate) range: Range<u64>,
    pub(crate) error: Error,
}

/// Fills `buf` from `offset`, with zeros for unreadable sectors, which are added to `damage`. Returns false if nothing
/// at all could be read.
pub(crate) fn read_past_damage(
    volume: &Volume,
    id: FileId,
    offset: u64,
    buf: &mut [u8],
    damage: &mut Vec<Damage>,
) -> bool {
    if read_exact(volume, id, offset, buf).is_ok() {
        return true;
    }
    let mut any = false;
    let sector = u64::from(volume.superblock().sectorsize.get()).max(1);
    let end = offset + buf.len() as u64;
    let mut at = offset;
    while at < end {
        // Splits at sectors of the file, not of the buffer, so that a damaged sector costs only itself.
        let next = (at / sector + 1).saturating_mul(sector).min(end);
        let part = &mut buf[(at - offset) as usize..(next - offset) as usize];
        match read_exact(volume, id, at, part) {
            Ok(()) => any = true,
            Err(error) => {
                part.fill(0);
                match damage.last_mut() {
                    Some(last) if last.range.end == at => last.range.end = next,
                    _ => damage.push(Damage {
                        range: at..next,
                        error,
                    }),
                }
            }
        }
        at = next;
    }
    any
}

/// Fills `buf` from `offset`. A file that ends before its size reads as zeros from there.
fn read_exact(volume: &Volume, id: FileId, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
    let mut done = 0;
    while done < buf.len() {
        let len = volume.read(id, offset + done as u64, &mut buf[done..])?;
        if len == 0 {
            buf[done..].fill(0);
            break;
        }
        done += len;
    }
    Ok(())
}

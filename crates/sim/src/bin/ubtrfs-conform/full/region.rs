//! Changes of the contents of one file, or of a process's part of a shared file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{Advice, FallocateFlags, OFlags, copy_file_range, fadvise, fallocate};
use rustix::io::Errno;
use ubtrfs_sim::Rng;

use super::mapped;
use super::model::{Model, PAGE, fill};

const MOST_BYTES: u64 = 192 << 10;
const MOST_WRITE_BYTES: u64 = 40_000;
const MOST_PAGES: u64 = 12;
const HISTORY: usize = 16;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Yes,
    /// There was no space.
    Refused,
    /// There was nothing to do.
    No,
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) path: PathBuf,
    /// Start of the part in the file; None for a whole file.
    pub(super) base: Option<u64>,
    pub(super) model: Model,
    /// The last changes, for debugging a failure.
    pub(super) history: VecDeque<String>,
}

/// Returns None for a lack of space.
pub(super) fn refused<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// An aligned buffer for direct IO.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + PAGE as usize];
        let from = bytes.as_ptr().align_offset(PAGE as usize);
        Aligned { bytes, from, len }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

impl Region {
    pub(super) fn new(path: PathBuf, base: Option<u64>, model: Model) -> Region {
        Region {
            path,
            base,
            model,
            history: VecDeque::new(),
        }
    }

    fn note(&mut self, what: &str, offset: u64, len: u64, how: &str) {
        self.history.truncate(HISTORY - 1);
        let size = self.model.len();
        let text = format!("{what} {offset}+{len} {how}, {size} bytes");
        self.history.push_front(text);
    }

    fn base(&self) -> u64 {
        self.base.unwrap_or(0)
    }

    fn open(&self, direct: bool) -> io::Result<File> {
        let flags = if direct { OFlags::DIRECT.bits() } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(flags.cast_signed()).open(&self.path)
    }

    /// Returns the start and the maximum length of a change.
    fn place(&self, rng: &mut Rng, page: u64) -> (u64, u64) {
        let room = match self.base {
            Some(_) => self.model.len(),
            None => MOST_BYTES.min(self.model.len() + 20_000),
        };
        let offset = rng.below(room / page) * page;
        let most = match page {
            1 => MOST_WRITE_BYTES,
            _ => MOST_PAGES * page,
        };
        let most = match self.base {
            Some(_) => room - offset,
            None => most,
        };
        (offset, (1 + rng.below(most / page)) * page)
    }

    pub(super) fn write(&mut self, rng: &mut Rng, direct: bool) -> Outcome<Done> {
        let (offset, len) = self.place(rng, if direct { PAGE } else { 1 });
        self.write_at(rng.next_u64(), offset, len, direct)
    }

    pub(super) fn append(&mut self, rng: &mut Rng) -> Outcome<Done> {
        if self.base.is_some() || self.model.len() >= MOST_BYTES {
            return Ok(Done::No);
        }
        let len = 1 + rng.below(MOST_WRITE_BYTES);
        self.write_at(rng.next_u64(), self.model.len(), len, false)
    }

    fn write_at(&mut self, tag: u64, offset: u64, len: u64, direct: bool) -> Outcome<Done> {
        let mut memory = Aligned::new(len as usize);
        let bytes = memory.get();
        fill(bytes, tag, offset);
        let file = self.open(direct)?;
        Ok(match refused(file.write_at(bytes, self.base() + offset))? {
            Some(written) => {
                self.model.write(offset, &bytes[..written]);
                let how = if direct { "direct" } else { "buffered" };
                self.note("write", offset, written as u64, how);
                Done::Yes
            }
            None => {
                self.note("write", offset, len, "refused");
                if direct {
                    // The kernel's btrfs may have written a part.
                    let mut all = self.model.clone();
                    all.write(offset, bytes);
                    self.adopt(&all)?;
                }
                Done::Refused
            }
        })
    }

    /// Stores whole pages through a mapping.
    pub(super) fn store(&mut self, rng: &mut Rng) -> Outcome<Done> {
        let pages = self.model.len() / PAGE;
        if pages == 0 {
            return Ok(Done::No);
        }
        let first = rng.below(pages);
        let offset = first * PAGE;
        let len = (1 + rng.below((pages - first).min(MOST_PAGES))) * PAGE;
        let (tag, base) = (rng.next_u64(), self.base());
        if mapped::store(&self.path, base + offset, len as usize, tag)? {
            let mut bytes = vec![0; len as usize];
            fill(&mut bytes, tag, base + offset);
            self.model.write(offset, &bytes);
            self.note("store", offset, len, "");
            return Ok(Done::Yes);
        }
        self.model.doubt(offset..offset + len);
        self.note("store", offset, len, "refused");
        // The kernel also drops the data that it still holds for it. This error is only reported once.
        let _ = self.open(false)?.sync_all();
        Ok(Done::Refused)
    }

    pub(super) fn truncate(&mut self, rng: &mut Rng) -> Outcome<Done> {
        let len = match rng.below(4) {
            0 => 0,
            1 => rng.below(MOST_BYTES),
            _ => rng.below(self.model.len() + 1),
        };
        Ok(match refused(self.open(false)?.set_len(len))? {
            Some(()) => {
                self.model.resize(len);
                self.note("truncate", len, 0, "");
                Done::Yes
            }
            None => {
                self.note("truncate", len, 0, "refused");
                Done::Refused
            }
        })
    }

    pub(super) fn reserve(&mut self, rng: &mut Rng) -> Outcome<Done> {
        let (offset, len) = self.place(rng, if rng.clone().one_in(2) { PAGE } else { 1 });
        let keeps = self.base.is_some() || rng.one_in(2);
        let flags = if keeps {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::empty()
        };
        let done = self.fallocate(flags, offset, len)?;
        if done == Done::Yes && !keeps && offset + len > self.model.len() {
            self.model.resize(offset + len);
        }
        Ok(done)
    }

    /// Punches a hole, or writes zeros.
    pub(super) fn clear(&mut self, rng: &mut Rng) -> Outcome<Done> {
        let page = if self.base.is_some() || rng.one_in(2) {
            PAGE
        } else {
            1
        };
        let (offset, len) = self.place(rng, page);
        let kind = if rng.one_in(2) {
            FallocateFlags::PUNCH_HOLE
        } else {
            FallocateFlags::ZERO_RANGE
        };
        let mut cleared = self.model.clone();
        cleared.zero(offset..offset + len);
        match self.fallocate(kind | FallocateFlags::KEEP_SIZE, offset, len)? {
            Done::Yes => self.model = cleared,
            // A part may have been cleared.
            _ => self.adopt(&cleared)?,
        }
        Ok(Done::Yes)
    }

    fn fallocate(&mut self, flags: FallocateFlags, offset: u64, len: u64) -> Outcome<Done> {
        let file = self.open(false)?;
        let outcome = fallocate(&file, flags, self.base() + offset, len);
        self.note("fallocate", offset, len, &format!("{flags:?} {outcome:?}"));
        Ok(match refused(outcome.map_err(io::Error::from))? {
            Some(()) => Done::Yes,
            None => Done::Refused,
        })
    }

    /// Copies a part of another file.
    pub(super) fn copy_from(&mut self, from: &Region, rng: &mut Rng) -> Outcome<Done> {
        if !from.model.is_sure() || from.model.len() == 0 || self.base.is_some() {
            return Ok(Done::No);
        }
        let page = if rng.one_in(2) { PAGE } else { 1 };
        let offset = rng.below(from.model.len() / page + 1) * page;
        let (to, len) = self.place(rng, page);
        let end = from.model.len().min(offset + len);
        let bytes = if offset < end {
            &from.model.bytes[offset as usize..end as usize]
        } else {
            return Ok(Done::No);
        };
        let (source, target) = (from.open(false)?, self.open(false)?);
        let (mut at, mut at_target) = (offset, to);
        let len = bytes.len();
        let copied = copy_file_range(&source, Some(&mut at), &target, Some(&mut at_target), len);
        self.note("copy", to, len as u64, &format!("{copied:?} from {offset}"));
        Ok(match refused(copied.map_err(io::Error::from))? {
            Some(copied) => {
                self.model.write(to, &bytes[..copied]);
                Done::Yes
            }
            None => {
                let mut all = self.model.clone();
                all.write(to, bytes);
                self.adopt(&all)?;
                Done::Refused
            }
        })
    }

    /// Calls fsync. For shared files, errors may be about lost stores of other processes.
    pub(super) fn sync(&self) -> Outcome<Done> {
        let file = self.open(false)?;
        match file.sync_all() {
            // PRESSURE-2
            Err(error) if self.base.is_none() => {
                Err(format!("{}: fsync: {error}", self.path.display()).into())
            }
            _ => Ok(Done::Yes),
        }
    }

    /// Adopts a partial change: each byte is either the old or the wanted one.
    fn adopt(&mut self, wanted: &Model) -> Outcome<()> {
        let found = self.read(false, 0, MOST_BYTES * 2)?;
        let mut now = self.model.clone();
        now.resize(found.len() as u64);
        let mut target = wanted.clone();
        target.resize(found.len() as u64);
        for (at, byte) in found.iter().enumerate() {
            if *byte == target.bytes[at] {
                now.bytes[at] = *byte;
            }
        }
        self.model = now;
        Ok(())
    }

    fn read(&self, direct: bool, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        let most = match self.base {
            Some(_) => self.model.len() - offset,
            None => u64::MAX,
        };
        let len = len.min(most);
        let file = self.open(direct)?;
        let mut memory = Aligned::new(len.next_multiple_of(PAGE) as usize);
        let mut read = 0;
        while read < len as usize {
            let more = file.read_at(
                &mut memory.get()[read..],
                self.base() + offset + read as u64,
            )?;
            read += more;
            if more == 0 || direct && !more.is_multiple_of(PAGE as usize) {
                break;
            }
        }
        Ok(memory.get()[..read.min(len as usize)].to_vec())
    }

    /// Compares the file with its expected contents.
    pub(super) fn check(&self, rng: &mut Rng) -> Outcome<()> {
        let direct = rng.one_in(3);
        if !direct && rng.one_in(4) {
            fadvise(self.open(false)?, 0, None, Advice::DontNeed)?;
        }
        let most = self.model.len() + PAGE;
        // A direct read writes dirty pages first, and may return the error of an earlier failed store.
        let found = match refused(self.read(direct, 0, most))? {
            Some(found) => found,
            None => self.read(direct, 0, most)?,
        };
        let how = if direct { "direct" } else { "buffered" };
        let path = self.path.display();
        if found.len() as u64 != self.model.len() {
            let (found, wanted) = (found.len(), self.model.len());
            return Err(format!(
                "{path}: {found} bytes, not {wanted} ({how}); {:#?}",
                self.history
            )
            .into());
        }
        match self.model.first_wrong(0, &found) {
            None => Ok(()),
            Some(at) => {
                let (found, wanted) = (found[at as usize], self.model.bytes[at as usize]);
                let at = self.base() + at;
                let history = &self.history;
                let later = self.look_again(most);
                Err(format!(
                    "{path}: byte {at} is {found}, not {wanted} ({how}); {later}; {history:#?}"
                )
                .into())
            }
        }
    }

    /// Reads again in different ways, to show whether a fault persists, and whether the page cache or the file is
    /// wrong.
    fn look_again(&self, most: u64) -> String {
        let look = |direct| match self.read(direct, 0, most) {
            Ok(found) => match self.model.first_wrong(0, &found) {
                None => "all is right".to_owned(),
                Some(at) => format!("wrong from byte {}", self.base() + at),
            },
            Err(error) => error.to_string(),
        };
        format!("again: {}, direct: {}", look(false), look(true))
    }
}

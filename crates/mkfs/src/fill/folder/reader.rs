//! Reader threads, which read runs of files and pass them on in batches.

use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Advice, AtFlags, FileType, Stat, fadvise, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::contents::{DeferredFile, OpenFile};
use super::open_dir::{OpenDir, attributes};
use super::{Batch, FolderOptions, Listed, ReaderRun, xattrs};
use crate::fill::encode::Part;
use crate::fill::error::FillError;
use crate::fill::source::{Attributes, Body, Contents, Event, LinkId};

/// The size of contents in a batch.
const BATCH_BYTES: usize = 512 << 10;
/// The size of the readahead for a file before it is read. The kernel extends it for longer files.
const AHEAD_BYTES: NonZeroU64 = NonZeroU64::new(128 << 10).unwrap();

/// Reads runs until the channel is closed.
pub(super) fn work(runs: &Mutex<Receiver<ReaderRun>>, options: &Arc<FolderOptions>) {
    loop {
        let next = runs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(run) = next else { return };
        let mut reader = Reader {
            dir: run.dir,
            options,
            batch: Vec::new(),
            batch_bytes: 0,
            out: run.out,
        };
        let last = match reader.run(run.files) {
            Ok(()) => reader.send(true),
            Err(Stop::Failed(error)) => reader.out.send(Err(*error)).map_err(|_| Stop::NotWanted),
            Err(Stop::NotWanted) => Err(Stop::NotWanted),
        };
        // The walk no longer waits for this run, but it may wait for others.
        drop(last);
    }
}

/// The reason why reading stops.
enum Stop {
    Failed(Box<FillError>),
    /// The walk was abandoned.
    NotWanted,
}

impl From<FillError> for Stop {
    fn from(error: FillError) -> Stop {
        Stop::Failed(Box::new(error))
    }
}

struct Reader<'a> {
    dir: Arc<OpenDir>,
    options: &'a Arc<FolderOptions>,
    batch: Vec<Event>,
    batch_bytes: usize,
    out: SyncSender<Result<Batch, FillError>>,
}

impl Reader<'_> {
    fn send(&mut self, is_last: bool) -> Result<(), Stop> {
        self.batch_bytes = 0;
        let events = std::mem::take(&mut self.batch);
        let batch = Batch { events, is_last };
        self.out.send(Ok(batch)).map_err(|_| Stop::NotWanted)
    }

    /// Opens all files before reading the first, so that the disk can reorder the requests for their contents.
    fn run(&mut self, files: Vec<Listed>) -> Result<(), Stop> {
        let mut opened = VecDeque::with_capacity(files.len());
        let mut failed = None;
        for listed in &files {
            if listed.is_regular {
                match self.open(listed) {
                    Ok(file) => opened.push_back(file),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
        for listed in files {
            if !listed.is_regular {
                self.other(listed)?;
            } else if let Some((file, stat)) = opened.pop_front() {
                self.regular(listed, file, stat)?;
            } else {
                break;
            }
        }
        // An error of an earlier file is reported first.
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn open(&self, listed: &Listed) -> Result<(File, Stat), FillError> {
        let (dir, name) = (&self.dir, &listed.name);
        let file = dir.open_file(name)?;
        let stat = fstat(&file).map_err(|errno| dir.failed("examine", name, errno))?;
        let size = NonZeroU64::new(stat.st_size as u64);
        if let Some(size) =
            size.filter(|_| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
        {
            // Only a hint.
            let _ = fadvise(&file, 0, Some(size.min(AHEAD_BYTES)), Advice::WillNeed);
        }
        Ok((file, stat))
    }

    /// Adds a link, device, pipe or socket, without opening it.
    fn other(&mut self, listed: Listed) -> Result<(), Stop> {
        let dir = &self.dir;
        let name = listed.name;
        let stat = statat(&dir.fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| dir.failed("examine", &name, errno))?;
        let body = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                let target = readlinkat(&dir.fd, name.as_slice(), Vec::new());
                let target = target.map_err(|errno| dir.failed("read", &name, errno))?;
                Body::Symlink(target.into_bytes())
            }
            FileType::RegularFile | FileType::Directory | FileType::Unknown => {
                let path = dir.path_of(&name);
                return Err(FillError::Replaced { path }.into());
            }
            _ => Body::None,
        };
        let mut attributes = attributes(&stat, listed.flags);
        attributes.xattrs = xattrs::of_name(dir.fd.as_fd(), &name)
            .map_err(|errno| dir.failed("read attributes of", &name, errno))?;
        self.batch.push(Event::File {
            name,
            attributes,
            link: link(&stat),
            body,
        });
        Ok(())
    }

    fn regular(&mut self, listed: Listed, file: File, stat: Stat) -> Result<(), Stop> {
        let dir = Arc::clone(&self.dir);
        let name = listed.name;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let path = dir.path_of(&name);
            return Err(FillError::Replaced { path }.into());
        }
        if self.options.targets.contains(&(stat.st_dev, stat.st_ino)) {
            let path = dir.path_of(&name);
            return Err(FillError::IsTarget { path }.into());
        }
        let mut attributes = attributes(&stat, listed.flags);
        attributes.xattrs = xattrs::of_open(&file)
            .map_err(|errno| dir.failed("read attributes of", &name, errno))?;
        let link = link(&stat);
        let size = stat.st_size as u64;
        if let Some((id, _)) = link.filter(|_| size > 0) {
            let deferred = DeferredFile {
                dir,
                name: name.clone(),
                id,
                size,
                options: Arc::clone(self.options),
            };
            let contents = Contents::Deferred(Box::new(deferred));
            self.batch.push(Event::File {
                name,
                attributes,
                link,
                body: Body::Data { size, contents },
            });
            return Ok(());
        }
        self.contents(&dir, name, file, size, attributes, link)
    }

    fn contents(
        &mut self,
        dir: &OpenDir,
        name: Vec<u8>,
        file: File,
        size: u64,
        attributes: Attributes,
        link: Option<(LinkId, u32)>,
    ) -> Result<(), Stop> {
        let options = Arc::clone(self.options);
        let mut encoder = options.coding.encoder(attributes.flags);
        let mut open = OpenFile {
            dir,
            name: &name,
            file: Arc::new(file),
            size,
        };
        let mut parts = Vec::new();
        let event = |name: &[u8], contents| Event::File {
            name: name.to_vec(),
            attributes: attributes.clone(),
            link,
            body: Body::Data { size, contents },
        };
        let mut has_begun = false;
        let mut is_wanted = true;
        let read = open.read(options.sharing, &mut encoder, &mut |part| {
            self.batch_bytes += part_bytes(&part);
            parts.push(part);
            if self.batch_bytes > BATCH_BYTES && is_wanted {
                if !has_begun {
                    self.batch.push(event(&name, Contents::Following));
                    has_begun = true;
                }
                self.batch.push(Event::Parts(std::mem::take(&mut parts)));
                is_wanted = self.send(false).is_ok();
            }
            if is_wanted {
                Ok(())
            } else {
                // Ends the read. The walk is gone and will not see the error.
                Err(dir.failed("read", &name, Errno::CANCELED))
            }
        });
        if !is_wanted {
            return Err(Stop::NotWanted);
        }
        read?;
        let is_incompressible = encoder.is_incompressible();
        if has_begun {
            self.batch.push(Event::Parts(parts));
            self.batch.push(Event::End { is_incompressible });
        } else {
            let contents = Contents::Whole {
                parts,
                is_incompressible,
            };
            self.batch.push(event(&name, contents));
        }
        Ok(())
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Inline(inline) => inline.data.len(),
        Part::Piece(piece) => piece.data.len(),
    }
}

fn link(stat: &Stat) -> Option<(LinkId, u32)> {
    let id = LinkId {
        device: stat.st_dev,
        number: stat.st_ino,
    };
    let names = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
    (names > 1).then_some((id, names))
}

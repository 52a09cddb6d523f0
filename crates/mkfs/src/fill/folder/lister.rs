//! The thread that lists the directory tree in the order of the walk, and creates steps for the walk and runs for
//! readers.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_format::limits::LimitError;

use super::open_dir::{OpenDir, attributes};
use super::{BATCHES, FolderOptions, Listed, ReaderRun, WalkStep, xattrs};
use crate::fill::error::FillError;
use crate::fill::marks::{Marked, Marks};
use crate::fill::source::Event;

/// Maximum number of files in a run.
const RUN_FILES: usize = 64;
/// The same, if files stay open until they are written.
const RUN_OPEN_FILES: usize = 8;
/// Maximum number of open directories on the path. Higher ones are reopened through `..`.
const OPEN_DIRS: usize = 64;
const LIST_BYTES: usize = 64 << 10;

pub(super) struct Lister {
    root: Option<OpenDir>,
    marks: Marks,
    options: Arc<FolderOptions>,
    steps: SyncSender<WalkStep>,
    runs: SyncSender<ReaderRun>,
    stack: Vec<Frame>,
    /// The current path below the root. Only maintained if there are requests for paths.
    path: Vec<u8>,
    list_buf: Vec<MaybeUninit<u8>>,
}

/// A directory on the current path.
struct Frame {
    /// None if it was closed during the descent.
    dir: Option<Arc<OpenDir>>,
    /// Device and inode number.
    identity: (u64, u64),
    shown_path: Vec<u8>,
    names: Names,
    next: usize,
    flags: InodeFlags,
    path_len: usize,
}

/// The reason why the lister stops.
enum Stop {
    Failed(FillError),
    /// The walk was abandoned.
    NotWanted,
}

impl From<FillError> for Stop {
    fn from(error: FillError) -> Stop {
        Stop::Failed(error)
    }
}

impl Lister {
    pub(super) fn new(
        root: OpenDir,
        marks: Marks,
        options: Arc<FolderOptions>,
        steps: SyncSender<WalkStep>,
        runs: SyncSender<ReaderRun>,
    ) -> Lister {
        Lister {
            root: Some(root),
            marks,
            options,
            steps,
            runs,
            stack: Vec::new(),
            path: Vec::new(),
            list_buf: vec![MaybeUninit::uninit(); LIST_BYTES],
        }
    }

    pub(super) fn run(mut self) {
        let last = match self.walk() {
            Ok(()) => WalkStep::Done(self.marks.unvisited()),
            Err(Stop::Failed(error)) => WalkStep::Failed(error),
            Err(Stop::NotWanted) => return,
        };
        // If the walk was abandoned, there is no receiver.
        let _ = self.steps.send(last);
    }

    fn walk(&mut self) -> Result<(), Stop> {
        if let Some(root) = self.root.take() {
            let marked = self.marks.visit(b"", true, InodeFlags::empty());
            self.enter(root, Vec::new(), marked)?;
        }
        while let Some(frame) = self.stack.last_mut() {
            if frame.next == frame.names.len() {
                self.leave()?;
                continue;
            }
            let (name, kind) = frame.names.get(frame.next);
            if kind == FileType::Directory {
                let name = name.to_vec();
                frame.next += 1;
                self.go_down(name)?;
            } else {
                self.files()?;
            }
        }
        Ok(())
    }

    fn step(&self, step: WalkStep) -> Result<(), Stop> {
        self.steps.send(step).map_err(|_| Stop::NotWanted)
    }

    fn enter(&mut self, dir: OpenDir, name: Vec<u8>, marked: Marked) -> Result<(), Stop> {
        let stat = dir.stat()?;
        let names = Names::list(&dir, &mut self.list_buf)?;
        let mut attributes = attributes(&stat, marked.flags);
        attributes.xattrs = xattrs::of_open(&dir.fd)
            .map_err(|errno| dir.failed("read attributes of", b"", errno))?;
        self.step(WalkStep::Event(Event::Enter {
            name,
            attributes,
            name_bytes: names.total_bytes(),
            subvolume: marked.subvolume,
        }))?;
        self.stack.push(Frame {
            identity: (stat.st_dev, stat.st_ino),
            shown_path: dir.path().to_vec(),
            dir: Some(Arc::new(dir)),
            names,
            next: 0,
            flags: marked.flags,
            path_len: self.path.len(),
        });
        // Limit the number of open directories. `leave` reopens this one.
        if let Some(above) = self.stack.len().checked_sub(OPEN_DIRS + 1) {
            self.stack[above].dir = None;
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Stop> {
        let left = self.stack.pop().expect("called with a directory to leave");
        self.step(WalkStep::Event(Event::Leave))?;
        let Some(frame) = self.stack.last_mut() else {
            return Ok(());
        };
        self.path.truncate(frame.path_len);
        if frame.dir.is_none() {
            let child = left.dir.expect("the lowest directories are open");
            let dir = child.open_parent(frame.shown_path.clone())?;
            let stat = dir.stat()?;
            // The tree was changed during the walk.
            if (stat.st_dev, stat.st_ino) != frame.identity {
                let path = dir.path_of(b"");
                return Err(FillError::Replaced { path }.into());
            }
            frame.dir = Some(Arc::new(dir));
        }
        Ok(())
    }

    fn go_down(&mut self, name: Vec<u8>) -> Result<(), Stop> {
        let frame = self.stack.last().expect("names are in directories");
        let flags = frame.flags;
        let dir = frame.dir.as_ref().expect("the lowest directory is open");
        let child = dir.open_dir(&name)?;
        let marked = self.visit(&name, true, flags);
        if !self.marks.are_none() {
            push_name(&mut self.path, &name);
        }
        self.enter(child, name, marked)
    }

    fn visit(&mut self, name: &[u8], is_dir: bool, inherited: InodeFlags) -> Marked {
        if self.marks.are_none() {
            return Marked {
                subvolume: None,
                flags: inherited,
            };
        }
        let len = self.path.len();
        push_name(&mut self.path, name);
        let marked = self.marks.visit(&self.path, is_dir, inherited);
        self.path.truncate(len);
        marked
    }

    /// Creates a run of the files up to the next directory.
    fn files(&mut self) -> Result<(), Stop> {
        let most = if self.options.sharing {
            RUN_OPEN_FILES
        } else {
            RUN_FILES
        };
        let mut files = Vec::new();
        loop {
            let frame = self.stack.last_mut().expect("names are in directories");
            if files.len() == most || frame.next == frame.names.len() {
                break;
            }
            let (name, kind) = frame.names.get(frame.next);
            if kind == FileType::Directory {
                break;
            }
            let name = name.to_vec();
            frame.next += 1;
            let flags = frame.flags;
            let marked = self.visit(&name, false, flags);
            files.push(Listed {
                name,
                is_regular: kind == FileType::RegularFile,
                flags: marked.flags,
            });
        }
        let frame = self.stack.last().expect("names are in directories");
        let dir = frame.dir.as_ref().expect("the lowest directory is open");
        let (out, batches) = sync_channel(BATCHES);
        let run = ReaderRun {
            dir: Arc::clone(dir),
            files,
            out,
        };
        // Send the run first: the walk only waits for a run that a reader can get.
        self.runs.send(run).map_err(|_| Stop::NotWanted)?;
        self.step(WalkStep::Files(batches))
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The names of a directory in byte order.
struct Names {
    bytes: Vec<u8>,
    /// Offset, length and kind of each name.
    names: Vec<(u32, u8, FileType)>,
}

impl Names {
    fn list(dir: &OpenDir, buf: &mut [MaybeUninit<u8>]) -> Result<Names, FillError> {
        let mut bytes = Vec::new();
        let mut names = Vec::new();
        let mut entries = RawDir::new(dir.fd.as_fd(), buf);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| dir.failed("list", b"", errno))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if name.len() > usize::from(u8::MAX) || bytes.len() > u32::MAX as usize {
                return Err(FillError::Limit {
                    path: dir.path_of(name),
                    limit: LimitError::NameTooLong { len: name.len() },
                });
            }
            names.push((bytes.len() as u32, name.len() as u8, entry.file_type()));
            bytes.extend_from_slice(name);
        }
        let mut list = Names { bytes, names };
        list.find_kinds(dir)?;
        // SOURCE-1
        let bytes = &list.bytes;
        let name = |&(at, len, _): &(u32, u8, FileType)| &bytes[at as usize..][..len.into()];
        list.names.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        Ok(list)
    }

    /// Looks up unknown file kinds. Some file systems do not return the kind with the name.
    fn find_kinds(&mut self, dir: &OpenDir) -> Result<(), FillError> {
        for (at, len, kind) in &mut self.names {
            if *kind == FileType::Unknown {
                let name = &self.bytes[*at as usize..][..usize::from(*len)];
                let stat = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW);
                let stat = stat.map_err(|errno| dir.failed("examine", name, errno))?;
                *kind = FileType::from_raw_mode(stat.st_mode);
            }
        }
        Ok(())
    }

    fn len(&self) -> usize {
        self.names.len()
    }

    fn total_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn get(&self, number: usize) -> (&[u8], FileType) {
        let (at, len, kind) = self.names[number];
        (&self.bytes[at as usize..][..len.into()], kind)
    }
}

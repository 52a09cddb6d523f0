//! A directory tree as a source: listed by one thread, read by several, processed in one order.
//!
//! The lister traverses the tree in the order of the walk and creates a queue of steps. These are directories, and runs
//! of files for a reader. Readers take the runs in that order, and the walk receives the files of each run when it
//! reaches the run. The scheduling of threads therefore does not affect the result.
//!
//! Memory: `STEPS` runs of files and the contents of `BATCHES` batches per reader; the names of the directories on the
//! lister's current path. Open files: one run per reader.
//!
//! Not here: the contents of a file (`contents`), the inodes of files (`filler`).

mod contents;
mod lister;
mod open_dir;
mod reader;
mod xattrs;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ubtrfs_device::thread;
use ubtrfs_format::item::InodeFlags;

use self::lister::Lister;
use self::open_dir::OpenDir;
use super::encode::Coding;
use super::error::FillError;
use super::marks::Marks;
use super::source::{Event, Source};

/// Maximum number of steps that the lister is ahead of the walk.
const STEPS: usize = 32;
/// Maximum number of batches that a reader is ahead of the walk, per run.
const BATCHES: usize = 4;
/// At least several, because disks work best with several requests.
const READERS: RangeInclusive<usize> = 4..=8;

/// A step of the walk, created by the lister.
#[derive(Debug)]
enum WalkStep {
    Event(Event),
    Files(Receiver<Result<Batch, FillError>>),
    /// The end, with a requested path that was not found.
    Done(Option<PathBuf>),
    Failed(FillError),
}

/// Some events of a run.
#[derive(Debug)]
struct Batch {
    events: Vec<Event>,
    is_last: bool,
}

/// Files of one directory for a reader.
#[derive(Debug)]
struct ReaderRun {
    dir: Arc<OpenDir>,
    files: Vec<Listed>,
    out: SyncSender<Result<Batch, FillError>>,
}

/// A name of a file that is not a directory.
#[derive(Debug)]
struct Listed {
    name: Vec<u8>,
    is_regular: bool,
    flags: InodeFlags,
}

/// The options of readers.
#[derive(Debug)]
pub(super) struct FolderOptions {
    pub(super) coding: Coding,
    /// Device and inode number of files that must not be read: the images being created.
    pub(super) targets: Vec<(u64, u64)>,
    /// Whether pieces include the source of their bytes for sharing.
    pub(super) sharing: bool,
}

#[derive(Debug)]
pub(super) struct Folder {
    options: Arc<FolderOptions>,
    /// None after the walk has ended or was abandoned.
    steps: Option<Receiver<WalkStep>>,
    run: Option<Receiver<Result<Batch, FillError>>>,
    ready: VecDeque<Event>,
    unvisited: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a thread that reads the files below `path`.
fn start(
    name: &str,
    path: &Path,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, FillError> {
    thread::start(name, work).map_err(|source| FillError::Read {
        doing: "start a thread for",
        path: path.to_owned(),
        source,
    })
}

impl Folder {
    pub(super) fn open(
        path: &Path,
        marks: Marks,
        options: FolderOptions,
    ) -> Result<Folder, FillError> {
        let root = OpenDir::open_root(path)?;
        let options = Arc::new(options);
        let (step, steps) = sync_channel(STEPS);
        let (run, runs) = sync_channel(STEPS);
        let lister = Lister::new(root, marks, Arc::clone(&options), step, run);
        let mut threads = vec![start("ubtrfs-list", path, || lister.run())?];
        let runs = Arc::new(Mutex::new(runs));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..processors.clamp(*READERS.start(), *READERS.end()) {
            let (runs, options) = (Arc::clone(&runs), Arc::clone(&options));
            threads.push(start("ubtrfs-read", path, move || {
                reader::work(&runs, &options)
            })?);
        }
        Ok(Folder {
            options,
            steps: Some(steps),
            run: None,
            ready: VecDeque::new(),
            unvisited: None,
            threads,
        })
    }
}

impl Source for Folder {
    fn next(&mut self) -> Result<Option<Event>, FillError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if let Some(run) = &self.run {
                let batch = run.recv().expect("a reader reports the end of a run")?;
                self.ready = batch.events.into();
                if batch.is_last {
                    self.run = None;
                }
                continue;
            }
            let Some(steps) = &self.steps else {
                return Ok(None);
            };
            match steps.recv().expect("a lister reports its end") {
                WalkStep::Event(event) => return Ok(Some(event)),
                WalkStep::Files(run) => self.run = Some(run),
                WalkStep::Failed(error) => return Err(error),
                WalkStep::Done(unvisited) => {
                    self.unvisited = unvisited;
                    self.steps = None;
                }
            }
        }
    }

    fn skip_contents(&mut self) {
        self.options.coding.skip_contents();
    }

    fn unvisited(&self) -> Option<PathBuf> {
        self.unvisited.clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Threads that wait for the walk then get an error and end.
        self.steps = None;
        self.run = None;
        for thread in self.threads.drain(..) {
            // A panic has already been reported as a missing step or batch.
            let _ = thread.join();
        }
    }
}

//! Sending a read-only subvolume, whole or as its difference from another one.
//!
//! A send of a difference has five phases:
//! 1. names of non-directories are removed (`removal`),
//! 2. directories are made and moved (`receiver`),
//! 3. inodes get their names, data and attributes, by ascending number (`walk`, `update`, `data`),
//! 4. directories that are gone are removed,
//! 5. changed directories get what they hand down (`inherited`), and their times.
//!
//! Phases 1 and 3 walk the comparison of both snapshots. A full send is phases 3 and 5, and makes directories on the way.
//!
//! Memory is bounded, whatever differs: a path in each tree, batches of differences (`differences`), buffers of data, all
//! names of an inode, caches of directories. Numbers of inodes that are remembered go to temporary files beyond that (`spilled`).
//!
//! Equal snapshots and options give equal streams. No command of one fails at a receiver that has the parent as it is here.

mod clones;
mod data;
mod differences;
mod error;
mod extents;
mod file_tree;
mod inherited;
mod job;
mod lifting;
mod receiver;
mod removal;
mod spilled;
mod update;
mod walk;
mod xattrs;

use std::io::Write;
use std::iter;

use ubtrfs_engine::Snapshot;
use ubtrfs_format::ids::Transid;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_tree::RecentLeaves;

use crate::format::{Command, StreamVersion, StreamWriter, WriteError};
use file_tree::FileTree;
use job::Job;

pub use error::{CorruptFile, SendError};

/// Takes the commands of a stream.
pub trait CommandSink {
    fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError>;
}

impl<W: Write> CommandSink for StreamWriter<W> {
    fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError> {
        StreamWriter::write(self, command)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions {
    /// That of the stream's header.
    pub version: StreamVersion,
    /// Says which ranges of files changed, and leaves the data out.
    pub no_data: bool,
    /// Sends compressed extents as they are on disk.
    pub compressed: bool,
}

/// Sends one subvolume.
#[derive(Debug)]
pub struct Sender<'a> {
    snapshot: &'a Snapshot,
    parent: Option<&'a Snapshot>,
    clone_sources: Vec<&'a Snapshot>,
    options: SendOptions,
}

impl<'a> Sender<'a> {
    pub fn new(snapshot: &'a Snapshot, options: SendOptions) -> Sender<'a> {
        Sender {
            snapshot,
            parent: None,
            clone_sources: Vec::new(),
            options,
        }
    }

    /// Sends the difference from this one, which the receiver has.
    #[must_use]
    pub fn parent(mut self, parent: &'a Snapshot) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sends extents of this one as clones. The receiver has it.
    #[must_use]
    pub fn clone_source(mut self, source: &'a Snapshot) -> Self {
        self.clone_sources.push(source);
        self
    }

    /// Writes the commands of the subvolume. [`Command::End`] is left to the caller: several may share one stream.
    ///
    /// Errors:
    /// - one that has no name, as the top level;
    /// - an inode whose items are not sound;
    /// - `out` fails.
    pub fn send(&self, out: &mut dyn CommandSink) -> Result<(), SendError> {
        self.check()?;
        let (snapshot, parent) = (self.snapshot, self.parent);
        self.begin(out)?;
        let others = || self.parent.iter().chain(&self.clone_sources).copied();
        let leaves: Vec<RecentLeaves> = iter::once(snapshot)
            .chain(others())
            .map(|snapshot| RecentLeaves::of(snapshot.view()))
            .collect();
        let mut trees = iter::once(snapshot)
            .chain(others())
            .zip(&leaves)
            .map(|(snapshot, leaves)| FileTree { snapshot, leaves });
        let new = trees.next().expect("the first is the one that is sent");
        let old = parent.and_then(|_| trees.next());
        let sources: Vec<FileTree<'_>> = trees.collect();
        let mut job = Job::new(new, old, &sources, self.options, out);
        match job.old {
            None => {
                let dirs = job.update_inodes()?;
                job.hand_down()?;
                job.set_times(&dirs)?;
            }
            Some(old) => {
                let changed = job.remove_names(old)?;
                job.place_dirs(&changed)?;
                let dirs = job.update_inodes()?;
                job.remove_dirs(old, &changed.gone)?;
                job.hand_down()?;
                job.set_times(&dirs)?;
            }
        }
        for read in others().chain([snapshot]) {
            read.check_unchanged()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SendError> {
        if self.options.compressed && self.options.version < StreamVersion::V2 {
            return Err(SendError::CompressedNeedsVersion2);
        }
        for other in self.parent.iter().chain(&self.clone_sources) {
            if !std::ptr::eq(other.volume().as_ref(), self.snapshot.volume().as_ref()) {
                return Err(SendError::OtherVolume(other.id(), self.snapshot.id()));
            }
        }
        Ok(())
    }

    fn begin(&self, out: &mut dyn CommandSink) -> Result<(), SendError> {
        let id = self.snapshot.id();
        let place = self.snapshot.volume().subvolume_place(id)?;
        let place = place.ok_or(SendError::Nameless(id))?;
        let path = place.name.as_slice();
        let (uuid, ctransid) = identity(self.snapshot);
        let command = match self.parent {
            None => Command::Subvol {
                path,
                uuid,
                ctransid,
            },
            Some(parent) => {
                let (clone_uuid, clone_ctransid) = identity(parent);
                Command::Snapshot {
                    path,
                    uuid,
                    ctransid,
                    clone_uuid,
                    clone_ctransid,
                }
            }
        };
        Ok(out.write(&command)?)
    }
}

/// Returns by which numbers a receiver knows a subvolume: those of the subvolume that it was received from, if it was.
fn identity(snapshot: &Snapshot) -> (Uuid, Transid) {
    let item = snapshot.item();
    let uuid = match item.received_uuid.is_nil() {
        true => item.uuid,
        false => item.received_uuid,
    };
    (uuid, Transid(item.ctransid.get()))
}

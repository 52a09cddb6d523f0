//! Sending a read-only subvolume, either completely or as the difference from a parent.
//!
//! An incremental send has five phases:
//! 1. names of non-directories are removed (`removal`),
//! 2. directories are created and moved (`moves`),
//! 3. inodes get their names, data and attributes, in ascending order (`walk`, `update`, `data`),
//! 4. deleted directories are removed,
//! 5. changed directories get their inheritable attributes (`inheritable`) and their times.
//!
//! Phases 1 and 3 walk the comparison of both snapshots. A full send consists of phases 3 and 5, and creates
//! directories on the way.
//!
//! Memory is bounded for any difference: a path in each tree, batches of differences (`differences`), data buffers,
//! all names of one inode, and directory caches. Large sets of inode numbers spill to temporary files (`spilled`).
//!
//! Equal snapshots and options give equal streams. No command fails at a receiver whose parent is unchanged.

mod clones;
mod cloning;
mod data;
mod differences;
mod error;
mod extents;
mod file_tree;
mod inheritable;
mod inherited;
mod inode_update;
mod job;
mod lifting;
mod moves;
mod receiver;
mod removal;
mod spilled;
mod update;
mod walk;
mod xattrs;

use std::io::Write;
use std::iter;

use ubtrfs_format::ids::Transid;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::Snapshot;
use ubtrfs_tree::RecentLeaves;

use crate::format::{Command, StreamVersion, StreamWriter, WriteError};
use file_tree::FileTree;
use job::Job;

pub use error::{CorruptFile, SendError};

/// A sink for the commands of a stream.
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
    /// The version in the stream's header.
    pub version: StreamVersion,
    /// Send only the ranges of changed data.
    pub no_data: bool,
    /// Send compressed extents in their on-disk form.
    pub compressed: bool,
}

/// A sender of one subvolume.
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

    /// Sends only the difference from this parent, which must exist at the receiver.
    #[must_use]
    pub fn parent(mut self, parent: &'a Snapshot) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Sends extents of this subvolume as clones. It must exist at the receiver.
    #[must_use]
    pub fn clone_source(mut self, source: &'a Snapshot) -> Self {
        self.clone_sources.push(source);
        self
    }

    /// Writes the commands of the subvolume. The caller writes [`Command::End`], because several subvolumes may share
    /// one stream.
    ///
    /// Errors:
    /// - the subvolume has no name, like the top level;
    /// - an inode has invalid items;
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
                job.set_inheritable()?;
                job.set_times(&dirs)?;
            }
            Some(old) => {
                let changed = job.remove_names(old)?;
                job.place_dirs(&changed)?;
                let dirs = job.update_inodes()?;
                job.remove_dirs(old, &changed.gone)?;
                job.set_inheritable()?;
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

/// Returns the identity of a subvolume for receivers: the identity of its origin, if it was received.
fn identity(snapshot: &Snapshot) -> (Uuid, Transid) {
    let item = snapshot.item();
    let uuid = if item.received_uuid.is_nil() {
        item.uuid
    } else {
        item.received_uuid
    };
    (uuid, Transid(item.ctransid.get()))
}

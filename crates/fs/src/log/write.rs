//! Writing the log: changes of inodes are copied from the mutable set to the log of their subvolume.
//!
//! Concurrent syncs share one log (`sync_queue`).
//!
//! Invariants
//! - LOG-WRITE-2: a log is a copy of one state of the volume. No operation edits the subvolume during the
//!   copy.
//!
//! Locks: `TreeLog::logged`, then `LogSession`.
//! Not here: the blocks of the log (`ubtrfs_storage`), replay.

mod edits;
mod entries;
mod extents;
mod gather;
mod names;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::nonblocking;
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::key::KeyType;
use ubtrfs_storage::{FullCommitReason, IdHasher, LogOutcome, LogSession};

use super::sync_queue::SyncQueue;
use crate::error::{Error, Result};
use crate::file::{Durable, FileSync, Files};
use crate::inode::{Inode, Inodes, WritebackErrors, inode_key};
use edits::keys_of;
use gather::{Gather, Gathered};

/// The most attempts to gather a log if blocks have to be read from the devices.
const MOST_ATTEMPTS: u32 = 4;

/// The fsync log of a volume.
#[derive(Debug)]
pub(crate) struct TreeLog {
    inodes: Arc<Inodes>,
    files: Arc<Files>,
    /// Whether syncs use the log instead of a commit.
    is_on: bool,
    queue: SyncQueue<Request>,
    logged: Mutex<Logged>,
}

/// A sync in the queue.
#[derive(Debug)]
struct Request {
    inode: Arc<Inode>,
    what: Durable,
}

/// The logged inodes of the current transaction.
#[derive(Debug, Default)]
struct Logged {
    transid: Transid,
    inodes: HashMap<RootId, LoggedInodes>,
}

/// A map by inode number.
type ByInode<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

type LoggedInodes = ByInode<LoggedInode>;

/// The logged state of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedInode {
    what: Part,
    /// For a directory that is logged in full: the indexes of entries that changed since.
    entries: BTreeSet<u64>,
}

/// The logged part of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Its names and attributes.
    Existence,
    All,
}

impl TreeLog {
    pub(crate) fn new(files: &Arc<Files>, is_on: bool) -> TreeLog {
        TreeLog {
            inodes: Arc::clone(&files.inodes),
            files: Arc::clone(files),
            is_on,
            queue: SyncQueue::default(),
            logged: Mutex::default(),
        }
    }

    /// Makes `what` of an inode durable. `report` takes a pending write-back error.
    pub(crate) fn sync(
        &self,
        inode: &Arc<Inode>,
        what: Durable,
        report: impl FnOnce(&mut WritebackErrors) -> Option<String>,
    ) -> Result<()> {
        nonblocking::check()?;
        self.files.write_back_for_sync(inode, what, report)?;
        let manager = self.inodes.transactions()?;
        if !self.is_on {
            return match what {
                Durable::All => Ok(manager.commit_running()?),
                Durable::Data => self.commit_data_of(inode),
            };
        }
        // fdatasync: a commit that has everything but the times is enough.
        if what == Durable::Data
            && let Ok(changed) = inode.tree.inode_items.changed_in(inode.id)
            && manager.committed() >= changed
        {
            return Ok(manager.commit_through(changed)?);
        }
        if self.is_committed(inode)? {
            // There is nothing to log. Wait only for the last commit to be durable.
            return Ok(manager.commit_through(manager.committed())?);
        }
        let request = Request {
            inode: Arc::clone(inode),
            what,
        };
        self.queue.serve(request, |requests| {
            self.log(&mut self.logged.lock(), requests)
        })
    }

    /// Returns whether the last commit has all changes of an inode.
    fn is_committed(&self, inode: &Inode) -> Result<bool> {
        let all = keys_of(inode.id.ino.0, KeyType(0)..=KeyType(u8::MAX));
        if !inode.tree.is_committed_in(&all) {
            return Ok(false);
        }
        // The inode may have been created and deleted since the last commit. The sets have nothing of it
        // then, but the log may still have it.
        Ok(inode.tree.view.get(&inode_key(inode.id.ino))?.is_some() || !self.has_logged(inode))
    }

    fn has_logged(&self, inode: &Inode) -> bool {
        let logged = self.logged.lock();
        let of_tree = logged.inodes.get(&inode.tree.id());
        of_tree.is_some_and(|inodes| inodes.contains_key(&inode.id.ino.0))
    }

    /// Commits the changes of an inode, unless only times changed. Data written in place becomes durable with
    /// it.
    fn commit_data_of(&self, inode: &Inode) -> Result<()> {
        let manager = self.inodes.transactions()?;
        let items = &inode.tree.inode_items;
        match items.changed_in(inode.id) {
            Ok(changed) => Ok(manager.commit_through(changed)?),
            Err(ticket) => {
                let running = manager.running_transid();
                manager.commit_through(running)?;
                items.note_changed_by(ticket, inode.id, running);
                Ok(())
            }
        }
    }

    /// Logs the inodes of all requests, or commits if that is not possible.
    fn log(&self, logged: &mut Logged, requests: &[&Request]) -> Result<()> {
        let mut session = self.inodes.transactions()?.log_session()?;
        let transid = session.transid();
        if logged.transid != transid {
            *logged = Logged {
                transid,
                inodes: HashMap::new(),
            };
        }
        let mut subvolumes: HashMap<RootId, Vec<&Request>> = HashMap::new();
        for &request in requests {
            let of = subvolumes.entry(request.inode.id.root).or_default();
            of.push(request);
        }
        for requests in subvolumes.values() {
            match self.enter(logged, &mut session, requests) {
                Ok(()) => {}
                Err(Stop::FullCommit(reason)) => {
                    tracing::debug!(?reason, "a commit in place of a log");
                    return Ok(session.commit_instead(reason)?);
                }
                Err(Stop::Failed(error)) => {
                    tracing::warn!(%error, "nothing could be logged: a commit takes its place");
                    return Ok(session.commit_instead(FullCommitReason::Failed)?);
                }
            }
        }
        let reason = match session.write() {
            Ok(LogOutcome::Written) => return Ok(()),
            Ok(LogOutcome::NoRoom) => FullCommitReason::NoRoom,
            Ok(LogOutcome::Incomplete) => FullCommitReason::Failed,
            Err(error) if self.inodes.transactions()?.abort_reason().is_some() => {
                return Err(error.into());
            }
            Err(error) => {
                tracing::warn!(%error, "the log could not be written: a commit takes its place");
                FullCommitReason::Failed
            }
        };
        Ok(session.commit_instead(reason)?)
    }

    /// Adds the changes of inodes of one subvolume to its log.
    fn enter(
        &self,
        logged: &mut Logged,
        session: &mut LogSession<'_>,
        requests: &[&Request],
    ) -> std::result::Result<(), Stop> {
        let tree = &requests[0].inode.tree;
        let known = logged.inodes.entry(tree.id()).or_default();
        for _ in 0..MOST_ATTEMPTS {
            // LOG-WRITE-2
            let gathered = session.without_edits(|session| {
                let gathered = nonblocking::scope(|| self.gather(known, session, requests))?;
                gathered.enter(tree, known, session);
                Ok(())
            });
            match gathered {
                Err(Stop::Failed(error)) if error.is_would_block() => {}
                done => return done,
            }
            // A needed block is not in memory. Read it while operations are admitted, by gathering with a
            // discarded result.
            let _ = self.gather(known, session, requests);
        }
        Err(Stop::FullCommit(FullCommitReason::Cold))
    }

    fn gather(
        &self,
        known: &LoggedInodes,
        session: &LogSession<'_>,
        requests: &[&Request],
    ) -> std::result::Result<Gathered, Stop> {
        let manager = self.inodes.transactions()?;
        if manager.space.has_new_groups(manager.committed()) {
            return Err(Stop::FullCommit(FullCommitReason::NewChunk));
        }
        let tree = &requests[0].inode.tree;
        if tree.is_deleted() {
            return Err(Stop::FullCommit(FullCommitReason::Deleted));
        }
        Gather::new(&self.inodes, tree, known, session).run(requests)
    }
}

impl FileSync for TreeLog {
    fn sync_file(&self, inode: &Arc<Inode>) -> Result<()> {
        // The end of the group will make it durable.
        if self.inodes.transactions()?.gate.is_in_group() {
            return Ok(());
        }
        self.sync(inode, Durable::All, WritebackErrors::report)
    }
}

/// The reason why a sync is not logged.
#[derive(Debug)]
enum Stop {
    FullCommit(FullCommitReason),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<ubtrfs_tree::TreeError> for Stop {
    fn from(error: ubtrfs_tree::TreeError) -> Stop {
        Stop::Failed(error.into())
    }
}

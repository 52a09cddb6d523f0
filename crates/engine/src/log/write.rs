//! Writing the log: what was changed of inodes goes from the mutable set straight into the log of their subvolume.
//!
//! Callers that sync side by side share one log (`sync_queue`).
//!
//! Invariants
//! - LOG-WRITE-2: a log is taken from one state of the volume, which no operation is changing.
//!
//! Locks: `TreeLog::logged`, then `LogSession`.
//! Not here: blocks of the log (`ubtrfs_transaction`), replay.

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
use ubtrfs_transaction::{IdHasher, LogOutcome, LogSession, Unlogged};

use super::sync_queue::SyncQueue;
use crate::error::{Error, Result};
use crate::file::{Durable, FileSync, Files};
use crate::inode::{Inode, Inodes, WritebackErrors, inode_key};
use edits::keys_of;
use gather::{Gather, Gathered};

/// How often a log is gathered anew because something had to be read from the devices.
const MOST_ATTEMPTS: u32 = 4;

/// The fsync log of a volume.
#[derive(Debug)]
pub(crate) struct TreeLog {
    inodes: Arc<Inodes>,
    files: Arc<Files>,
    /// Whether anything is logged.
    is_on: bool,
    queue: SyncQueue<Request>,
    logged: Mutex<Logged>,
}

/// A sync that waits for its turn.
#[derive(Debug)]
struct Request {
    inode: Arc<Inode>,
    what: Durable,
}

/// The inodes that the logs of a transaction have.
#[derive(Debug, Default)]
struct Logged {
    transid: Transid,
    inodes: HashMap<RootId, LoggedInodes>,
}

/// Something of inodes, by their numbers.
type ByInode<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

type LoggedInodes = ByInode<LoggedInode>;

/// The state of an inode in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedInode {
    what: Part,
    /// Indexes of a directory that is logged in full whose entries were changed since.
    entries: BTreeSet<u64>,
}

/// The part of an inode that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Its names and attributes, and that it exists.
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

    /// Makes `what` of an inode durable; `report` takes a write-back error that is to be returned.
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
        if what == Durable::Data
            && let Ok(changed) = inode.tree.inode_items.changed_in(inode.id)
            && manager.committed() >= changed
        {
            return Ok(manager.commit_through(changed)?);
        }
        if self.is_committed(inode)? {
            // Nothing is to be logged, and no commit in progress has anything of it.
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

    /// Returns whether no log and no commit in progress has anything of an inode that the last commit has not.
    fn is_committed(&self, inode: &Inode) -> Result<bool> {
        let all = keys_of(inode.id.ino.0, KeyType(0)..=KeyType(u8::MAX));
        if !inode.tree.is_committed_in(&all) {
            return Ok(false);
        }
        // The sets have nothing either of one that has come and gone since, while the log may have it still.
        Ok(inode.tree.view.get(&inode_key(inode.id.ino))?.is_some() || !self.has_logged(inode))
    }

    fn has_logged(&self, inode: &Inode) -> bool {
        let logged = self.logged.lock();
        let of_tree = logged.inodes.get(&inode.tree.id());
        of_tree.is_some_and(|inodes| inodes.contains_key(&inode.id.ino.0))
    }

    /// Commits what was changed of an inode, times apart. Data that was written in place is durable then as well.
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

    /// Logs inodes, or commits.
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
                Err(Stop::Unlogged(reason)) => {
                    tracing::debug!(?reason, "a commit in place of a log");
                    return Ok(session.commit_instead(reason)?);
                }
                Err(Stop::Failed(error)) => {
                    tracing::warn!(%error, "nothing could be logged: a commit takes its place");
                    return Ok(session.commit_instead(Unlogged::Failed)?);
                }
            }
        }
        let reason = match session.write() {
            Ok(LogOutcome::Written) => return Ok(()),
            Ok(LogOutcome::NoRoom) => Unlogged::NoRoom,
            Ok(LogOutcome::Incomplete) => Unlogged::Failed,
            Err(error) if self.inodes.transactions()?.abort_reason().is_some() => {
                return Err(error.into());
            }
            Err(error) => {
                tracing::warn!(%error, "the log could not be written: a commit takes its place");
                Unlogged::Failed
            }
        };
        Ok(session.commit_instead(reason)?)
    }

    /// Puts what was changed of inodes of one subvolume into its log.
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
            // Reads what was missing, while operations go on. The outcome counts for nothing.
            let _ = self.gather(known, session, requests);
        }
        Err(Stop::Unlogged(Unlogged::Cold))
    }

    fn gather(
        &self,
        known: &LoggedInodes,
        session: &LogSession<'_>,
        requests: &[&Request],
    ) -> std::result::Result<Gathered, Stop> {
        let manager = self.inodes.transactions()?;
        if manager.space.has_new_groups(manager.committed()) {
            return Err(Stop::Unlogged(Unlogged::NewChunk));
        }
        let tree = &requests[0].inode.tree;
        if tree.is_deleted() {
            return Err(Stop::Unlogged(Unlogged::Deleted));
        }
        Gather::new(&self.inodes, tree, known, session).run(requests)
    }
}

impl FileSync for TreeLog {
    fn sync_file(&self, inode: &Arc<Inode>) -> Result<()> {
        // The end of the group makes it durable.
        if self.inodes.transactions()?.gate.is_in_group() {
            return Ok(());
        }
        self.sync(inode, Durable::All, WritebackErrors::report)
    }
}

/// Why nothing is logged.
#[derive(Debug)]
enum Stop {
    Unlogged(Unlogged),
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

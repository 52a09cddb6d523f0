//! Writeback of the kernel's dirty pages on request.
//!
//! If the kernel sends opens, only files that are open for writing may have dirty pages. Otherwise any known file may,
//! through a shared mapping.
//!
//! Not here: sending the notifications (`changes`), and the limit on waiting requests (`flushing`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::clock;
use ubtrfs_format::ids::RootId;
use ubtrfs_fuse_server::request::{Errno, NodeId, PageDrop, Result};

use super::WHOLE_FILE;
use super::changes::{Changes, Range};
use super::coherence;
use super::flushing::{Flushing, For};
use super::handles::Handles;
use super::known::KnownNodes;
use super::nodes::NodeTable;
use super::number::{Meaning, Numbering};
use super::span::Span;

/// A timeout, since the waiting thread may be the one that would serve the kernel's writes.
const FLUSHING_AT_MOST: Duration = Duration::from_secs(30);

/// The dirty pages of a mount in the kernel's cache. Also for threads that serve no request.
#[derive(Clone, Debug)]
pub struct KernelPages {
    pub(super) gets_opens: bool,
    pub(super) numbering: Numbering,
    pub(super) nodes: Arc<NodeTable>,
    pub(super) known: Arc<KnownNodes>,
    pub(super) handles: Arc<Handles>,
    pub(super) flushing: Arc<Flushing>,
    pub(super) changes: Changes,
}

impl KernelPages {
    /// Makes the kernel write back the files of one subvolume, or of all.
    ///
    /// # Errors
    /// Too many requests already wait for writeback (`EBUSY`), or the kernel has not finished in time (`EIO`).
    pub fn write_back(&self, subvolume: Option<RootId>) -> io::Result<()> {
        let written = self.write_back_of(subvolume);
        written.map_err(|error| io::Error::from_raw_os_error(error.code()))
    }

    pub(super) fn write_back_of(&self, subvolume: Option<RootId>) -> Result<()> {
        let nodes = if self.gets_opens {
            self.handles
                .written()
                .into_iter()
                .map(|file| self.changes.node_of(file))
                .collect()
        } else {
            self.known.files()
        };
        let is_in = |node: &NodeId| match subvolume {
            Some(id) => self.subvolume_of(*node) == Some(id),
            None => true,
        };
        let nodes = nodes.into_iter().filter(is_in);
        self.flush(For::Command, nodes.map(|node| (node, WHOLE_FILE)).collect())
    }

    /// Returns the subvolume of a node that is not the root of the mount, which is not a file.
    fn subvolume_of(&self, node: NodeId) -> Option<RootId> {
        match self.numbering.meaning(node.0) {
            Meaning::File(file) => Some(file.root),
            Meaning::Listed => Some(self.nodes.get(node.0)?.file().root),
            Meaning::Nothing => None,
        }
    }

    pub(super) fn flush(&self, why: For, ranges: Vec<(NodeId, Range)>) -> Result<()> {
        let _turn = self.flushing.enter(why).ok_or(Errno::BUSY)?;
        // The kernel writes pages before it drops them from its cache.
        let drops: Vec<_> = ranges
            .into_iter()
            .map(|(node, (start, len))| {
                let range = Span::new(start, len.unwrap_or(u64::MAX));
                coherence::begin_drop(&self.changes, &self.known, node, range)
            })
            .collect();
        let until = clock::now() + FLUSHING_AT_MOST;
        let is_over =
            |drop: &Arc<PageDrop>| drop.wait(until.saturating_duration_since(clock::now()));
        if drops.iter().all(is_over) {
            return Ok(());
        }
        // The caller would continue without the data: a copy of the data ranges, a snapshot.
        tracing::error!("the kernel has not written its pages of some files");
        Err(Errno::IO)
    }
}

//! Pages of files that the kernel holds and has not written yet, and having it write them.
//!
//! Where it asks before it opens, only files that are open for writing may have any. Else any file that it knows
//! may, by a shared mapping.
//!
//! Not here: how the kernel is told (`changes`), and how many may wait for it (`flushing`).

use std::io;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fuse_server::request::{Errno, NodeId, Result};

use super::WHOLE_FILE;
use super::changes::{Changes, Range};
use super::flushing::{Flushing, For};
use super::handles::Handles;
use super::known::KnownNodes;
use super::nodes::NodeTable;
use super::number::{Meaning, Numbering};

/// The dirty pages of a mount that the kernel holds. For threads that serve no request, too.
#[derive(Clone, Debug)]
pub struct KernelPages {
    pub(super) asks_opens: bool,
    pub(super) numbering: Numbering,
    pub(super) nodes: Arc<NodeTable>,
    pub(super) known: Arc<KnownNodes>,
    pub(super) handles: Arc<Handles>,
    pub(super) flushing: Arc<Flushing>,
    pub(super) changes: Changes,
}

impl KernelPages {
    /// Has the kernel write what it holds of the files of a subvolume, or of all.
    ///
    /// # Errors
    /// Too many wait for that (`EBUSY`), or the kernel has not done it in time (`EIO`).
    pub fn write_back(&self, subvolume: Option<RootId>) -> io::Result<()> {
        let written = self.write_back_of(subvolume);
        written.map_err(|error| io::Error::from_raw_os_error(error.code()))
    }

    pub(super) fn write_back_of(&self, subvolume: Option<RootId>) -> Result<()> {
        let nodes = match self.asks_opens {
            true => self
                .handles
                .written()
                .into_iter()
                .map(|file| self.changes.node_of(file))
                .collect(),
            false => self.known.files(),
        };
        let is_in = |node: &NodeId| match subvolume {
            Some(id) => self.subvolume_of(*node) == Some(id),
            None => true,
        };
        let nodes = nodes.into_iter().filter(is_in);
        self.flush(For::Command, nodes.map(|node| (node, WHOLE_FILE)).collect())
    }

    /// Returns the subvolume of a node. The node is not the root of the mount, which is no file.
    fn subvolume_of(&self, node: NodeId) -> Option<RootId> {
        match self.numbering.meaning(node.0) {
            Meaning::File(file) => Some(file.root),
            Meaning::Listed => Some(self.nodes.get(node.0)?.file().root),
            Meaning::Nothing => None,
        }
    }

    pub(super) fn flush(&self, why: For, ranges: Vec<(NodeId, Range)>) -> Result<()> {
        let _turn = self.flushing.enter(why).ok_or(Errno::BUSY)?;
        let nodes: Vec<_> = ranges.iter().map(|(node, _)| node.0).collect();
        nodes.iter().for_each(|&node| self.known.begin_drop(node));
        let is_flushed = self.changes.flush(ranges);
        let end = |&node: &u64| self.known.end_drop(node, is_flushed);
        nodes.iter().for_each(end);
        if is_flushed {
            return Ok(());
        }
        // The caller would go on without it: a copy by holes, a snapshot.
        tracing::error!("the kernel has not written its pages of some files");
        Err(Errno::IO)
    }
}

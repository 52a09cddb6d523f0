//! The layout of one tree's blocks on disk.
//!
//! A block that does not directly follow the previous one in key order costs a seek. A cluster is a run of
//! blocks without a seek.

use std::collections::BTreeMap;

use ubtrfs_format::ids::Logical;
use ubtrfs_format::item::FileExtent;
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;
use ubtrfs_tree::View;

use crate::error::Result;
use crate::volume::Volume;
use ubtrfs_storage::roots::blocks;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    pub total_bytes: u64,
    /// Bytes of inline file data in leaves, as stored.
    pub inline_bytes: u64,
    pub forward_seeks: u64,
    pub backward_seeks: u64,
    pub total_seek_bytes: u64,
    pub max_seek_bytes: u64,
    /// The number of seeks by distance.
    pub seeks: BTreeMap<u64, u64>,
    /// Clusters of more than one block that ended with a seek.
    pub clusters: u64,
    pub total_cluster_bytes: u64,
    pub min_cluster_bytes: Option<u64>,
    pub max_cluster_bytes: u64,
    pub lowest: Logical,
    pub highest: Logical,
    /// Blocks per level, leaves first.
    pub nodes: Vec<u64>,
}

impl TreeStats {
    pub fn total_seeks(&self) -> u64 {
        self.forward_seeks + self.backward_seeks
    }

    /// Returns the distance between the lowest and the highest block.
    pub fn spread_bytes(&self) -> u64 {
        self.highest.0.saturating_sub(self.lowest.0)
    }

    fn enter(&mut self, node: &Node<'_>, nodesize: u64) {
        self.total_bytes += nodesize;
        if let Some(count) = self.nodes.get_mut(usize::from(node.level())) {
            *count += 1;
        }
        // A new run starts below each node: a child is compared with its node or with the previous child.
        let (mut last, mut cluster) = (node.bytenr().0, nodesize);
        for ptr in node.ptrs() {
            let block = ptr.blockptr.get();
            self.step(last, block, &mut cluster, nodesize);
            last = block;
        }
    }

    fn step(&mut self, last: u64, block: u64, cluster: &mut u64, nodesize: u64) {
        self.lowest = self.lowest.min(Logical(block));
        self.highest = self.highest.max(Logical(block));
        let expected = last.saturating_add(nodesize);
        if expected == block {
            *cluster += nodesize;
            return;
        }
        let distance = expected.abs_diff(block);
        self.total_seek_bytes = self.total_seek_bytes.saturating_add(distance);
        self.max_seek_bytes = self.max_seek_bytes.max(distance);
        *self.seeks.entry(distance).or_default() += 1;
        if last < block {
            self.forward_seeks += 1;
        } else {
            self.backward_seeks += 1;
        }
        if *cluster != nodesize {
            self.total_cluster_bytes += *cluster;
            self.clusters += 1;
            self.max_cluster_bytes = self.max_cluster_bytes.max(*cluster);
            let min = self.min_cluster_bytes.get_or_insert(*cluster);
            *min = (*min).min(*cluster);
        }
        *cluster = nodesize;
    }

    fn add_inline(&mut self, leaf: &Node<'_>) {
        for (key, bytes) in leaf.items() {
            if key.item_type == KeyType::EXTENT_DATA
                && let Some(FileExtent::Inline { data, .. }) = FileExtent::decode(bytes)
            {
                self.inline_bytes += data.len() as u64;
            }
        }
    }
}

impl Volume {
    /// Walks all blocks of a tree.
    pub fn tree_stats(&self, view: &View) -> Result<TreeStats> {
        let nodesize = self.node_store().nodesize() as u64;
        let root = view.read_root()?;
        let start = root.node().bytenr();
        let mut stats = TreeStats {
            lowest: start,
            highest: start,
            max_cluster_bytes: nodesize,
            nodes: vec![0; usize::from(root.node().level()) + 1],
            ..TreeStats::default()
        };
        blocks::walk(view, &mut |block| {
            let node = block.node();
            stats.enter(&node, nodesize);
            if node.is_leaf() {
                stats.add_inline(&node);
            }
        })?;
        Ok(stats)
    }
}

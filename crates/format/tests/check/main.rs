//! The checker of tree blocks against blocks that the kernel made, whole and with one defect each.
//!
//! `tests/data/blocks` holds blocks of 4 KiB that Linux 6.18 wrote, taken from images as they lay there.

mod block;
mod golden;

mod extent_tree;
mod file_tree;
mod mutation;
mod superblock;
mod volume_trees;

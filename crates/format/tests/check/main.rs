//! The checker of tree blocks on blocks made by the kernel, intact and with one defect each.
//!
//! `tests/data/blocks` has blocks of 4 KiB written by Linux 6.18, extracted from images.

mod block;
mod golden;
mod lenient;
mod makers;

mod extent_tree;
mod file_tree;
mod mutation;
mod superblock;
mod volume_trees;

//! The btrfs on-disk format as types: no IO, no unsafe.

//! Our streams, received by `btrfs receive` into a volume of the kernel: the trees must be equal.

mod attributes;
mod clones;
mod crafted;
mod data;
mod deep;
mod edits;
mod fixture;
mod full;
mod interrupted;
mod kinds;
mod large;
mod puzzles;
mod received_by_us;
mod scripts;
mod situations;
mod unrelated;

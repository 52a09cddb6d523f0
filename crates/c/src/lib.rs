//! The library for C, over the crate `ubtrfs`.
//!
//! `include/ubtrfs.h` is made of these files by `cargo xtask header`, comments included. Its head (`include/head.h`) has the
//! rules that hold for all functions. The functions rely on them: their `SAFETY` comments name the head.
//!
//! - C-1: no panic leaves a function.
//! - C-2: a null pointer is an error, unless a function says what it means.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// Pointers of C.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the head of the header says it once for all functions"
)]
#![allow(non_camel_case_types, reason = "names of C")]

mod arguments;
mod attributes;
mod directory;
mod failure;
mod file;
mod group;
mod metadata;
mod options;
mod paths;
mod progress;
mod report;
mod streams;
mod subvolume;
mod transfer_options;
mod trees;
mod volume;

pub use attributes::*;
pub use directory::*;
pub use failure::*;
pub use file::*;
pub use group::*;
pub use metadata::*;
pub use options::*;
pub use paths::*;
pub use progress::*;
pub use report::*;
pub use streams::*;
pub use subvolume::*;
pub use transfer_options::*;
pub use trees::*;
pub use volume::*;

//! The C library, on top of the crate `ubtrfs`.
//!
//! `cargo xtask header` generates `include/ubtrfs.h` from these files, including comments. Its head (`include/head.h`)
//! has the rules for all functions. The functions rely on them: their `SAFETY` comments refer to the head.
//!
//! - C-1: no panic leaves a function.
//! - C-2: a null pointer is an error, unless the function documents it.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// Raw pointers of C.
#![allow(unsafe_code)]
#![allow(
    clippy::missing_safety_doc,
    reason = "stated once for all functions, at the head of the header"
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

//! The presentation of results: the console, formats of listings, and the notation of names, numbers and
//! times.
//!
//! Not here: items of trees (`print`).

pub(crate) mod clock;
pub(crate) mod console;
mod delayed_term;
pub(crate) mod error_chain;
pub(crate) mod file_stat;
pub(crate) mod interrupt;
pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod permissions;
pub(crate) mod profiles;
mod progress_line;
pub(crate) mod quoting;
pub(crate) mod size_suffix;
pub(crate) mod table;
pub(crate) mod transfer_console;
pub(crate) mod units;
pub(crate) mod xattr_text;

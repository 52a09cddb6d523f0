//! Long work on a whole volume, mounted or not.
//!
//! [`scrub`](mod@scrub) verifies all data and tree blocks on every device, and repairs them from other copies.
//!
//! Not here: checks of the agreement of trees with each other, which are in the crate `check`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
pub mod scrub;

pub use error::ScrubError;

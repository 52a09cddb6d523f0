//! Scrub: reads everything that the committed extent tree names from every device, verifies it, and repairs it.
//!
//! Each device has a thread, which visits the stripes of the device in physical order. It verifies the copy on this
//! device only, so each copy is read once. A chunk with parity is verified row by row, by the thread of its first
//! device.
//!
//! Invariants
//! - SCRUB-1: each window of extents is listed, read and repaired within one committed state. Its epoch keeps the space
//!   of these extents from being reused, so a repair never overwrites newer bytes.
//! - SCRUB-2: only verified bytes are written. Data without checksums is only written if its sector is unreadable, and
//!   only while nothing else uses the volume.
//! - SCRUB-3: a read-only scrub writes nothing.
//!
//! Locks: one leaf lock for each device's counts, and one for the list of damage; no IO under them.

mod control;
mod damaged_files;
mod device_pass;
mod extents;
mod offline;
mod options;
mod pace;
mod repair;
mod report;
mod rows;
mod run;
mod shared;
mod superblocks;
mod unit;
mod window;

pub use control::ScrubControl;
pub use offline::{OfflineOptions, OfflineScrub};
pub use options::ScrubOptions;
pub use report::{Damage, DamageKind, DamagedFile, DamagedRange, ScrubReport};
pub use run::scrub_volume;

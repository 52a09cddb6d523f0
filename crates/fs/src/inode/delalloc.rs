//! Delayed allocation: written data that is buffered until a write-back gives it extents.
//!
//! Each file with buffered data has a `buffer`, whose bytes are in `dirty_ranges` and count against the `buffer_pool`
//! of the volume. `reservation` is the space set aside for its extents, and `count` the sectors without one.
//! `writeback_errors` keeps losses for the next sync.
//!
//! Not here: the list of these files (`dirty_files`), how data becomes extents (`file::write_back`).

mod buffer;
mod buffer_pool;
mod count;
mod dirty_ranges;
mod reservation;
mod writeback_errors;

pub(crate) use buffer::WriteBuffer;
pub(crate) use buffer_pool::{BufferPool, WINDOW_BYTES};
pub(crate) use dirty_ranges::DirtyRanges;
#[cfg(test)]
pub(crate) use dirty_ranges::VISITS;
pub(crate) use reservation::{DelallocRequest, DelallocReservation, MAX_EXTENT_BYTES};
pub(crate) use writeback_errors::{SeenErrors, WritebackErrors};

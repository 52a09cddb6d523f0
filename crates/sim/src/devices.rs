//! Devices that fail, wait, call back, or record what they are asked.

pub mod fault;
mod hooked;
pub mod record;
mod slow;
mod throttled;

pub use hooked::{HookedDevice, Request};
pub use slow::SlowDevice;
pub use throttled::{Rate, ThrottledDevice};

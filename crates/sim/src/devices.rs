//! Devices that fail, delay, call back, or record requests.

mod discard_time;
pub mod fault;
mod hooked;
mod new_volume;
pub mod record;
mod slow;
mod throttled;

pub use discard_time::DiscardTime;
pub use hooked::{HookedDevice, Request};
pub use new_volume::{new_volume, new_volume_on};
pub use slow::SlowDevice;
pub use throttled::{Rate, ThrottledDevice};

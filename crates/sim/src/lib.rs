//! Test only: the kernel's btrfs as an oracle, images that it made, and a model of what it does.
//!
//! Reading. A conformance test asks `matrix` for cases, lets `kernel` make and mount a volume, `fill` put
//! the hard cases of the format into it, and compares the `manifest` that the kernel shows with the one of
//! another reader. `images` has a few such volumes ready, for machines without root or kernel btrfs;
//! `craft` makes volumes that no kernel would make, `damage` breaks what a volume must survive.
//!
//! Writing. `script` does random operations to a file system and to the `model` at once, and compares; the
//! model is proven against the kernel in the same way. `record` keeps what devices are asked and gives the
//! images that power cuts leave, which `oracle` judges; `fault` makes a device fail, `slow` makes one that has
//! nothing at hand, `throttled` one whose writes take long, `hooked` one that calls back.

pub mod craft;
pub mod damage;
mod error;
pub mod fault;
pub mod fill;
mod hooked;
pub mod images;
pub mod kernel;
pub mod manifest;
pub mod matrix;
pub mod model;
pub mod oracle;
mod program;
mod progress;
mod raw_ioctl;
pub mod record;
mod rng;
mod scratch;
pub mod script;
mod slow;
mod throttled;
mod vocabulary;
mod zeros;

pub use error::Error;
pub use hooked::{HookedDevice, Request};
pub use progress::Progress;
pub use raw_ioctl::{ioctl_bytes, raw_ioctl};
pub use rng::{Rng, seed};
pub use scratch::Scratch;
pub use slow::SlowDevice;
pub use throttled::{Rate, ThrottledDevice};

pub type Result<T, E = Error> = std::result::Result<T, E>;

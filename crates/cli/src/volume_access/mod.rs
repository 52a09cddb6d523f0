//! How a command gets at a volume: which one an argument means, and who has it open.
//!
//! The command opens an image itself, or works on the open volume of a shell. On a path in a mount, the process that
//! serves the mount runs the command (`control`), or the command asks the kernel (`ioctls`).

pub(crate) mod changes;
pub(crate) mod control;
pub(crate) mod device_sizes;
pub(crate) mod held;
pub(crate) mod ioctls;
pub(crate) mod location;
pub(crate) mod operand;
pub(crate) mod place;
pub(crate) mod reason;
pub(crate) mod session;
pub(crate) mod stream_input;
pub(crate) mod stream_output;

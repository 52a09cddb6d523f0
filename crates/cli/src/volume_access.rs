//! Access to volumes: the volume that an argument names, and conflicts with other users of it.
//!
//! The command opens an image itself, or uses the open volume of a shell. For a path in a mount, the process
//! that serves the mount runs the command (`control`), or the command uses ioctls (`ioctls`).

pub(crate) mod assembled;
pub(crate) mod changes;
pub(crate) mod control;
pub(crate) mod device_sizes;
pub(crate) mod held;
pub(crate) mod ioctls;
pub(crate) mod joined;
pub(crate) mod location;
pub(crate) mod new_device;
pub(crate) mod operand;
pub(crate) mod place;
pub(crate) mod reason;
pub(crate) mod session;
pub(crate) mod stream_input;
pub(crate) mod stream_output;

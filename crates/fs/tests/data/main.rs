//! Files created by the kernel and changed by the engine, checked by the kernel, and the reverse.

mod kernel_check_accepts;
mod properties;

//! Files that the kernel made, changed by us and judged by the kernel, and the other way round.

mod kernel_check_accepts;
mod properties;

//! What the data path writes, judged by its own reader, by the check, and by the kernel.

mod model;
mod rig;

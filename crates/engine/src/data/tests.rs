//! What the data path writes, judged by its own reader, by the check, and by the kernel.

mod appends;
mod blocked;
mod cold;
mod failures;
mod dedupe;
mod full;
mod in_place;
mod many_files;
mod many_runs;
mod model;
mod rig;
mod threads;
mod rebuild;
mod waiting;
mod steps;

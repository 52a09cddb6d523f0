//! Block groups are emptied and removed, on volumes of the kernel and of the engine. Contents, sharing and both checkers
//! are compared after each step.

#[path = "../scripts/case_options.rs"]
mod case_options;
mod cuts;
mod fixture;
mod kernel_volumes;
mod relocating;
mod rules;
mod scripts;
#[path = "../scripts/shown.rs"]
mod shown;
#[path = "../scripts/target.rs"]
mod target;
mod threads;

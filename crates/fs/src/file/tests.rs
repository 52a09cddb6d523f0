//! Files written by the data path, checked by its own reader, by the checker, and by the kernel.

mod appends;
mod blocked;
mod closing;
mod cold;
mod cuts;
mod datasync;
mod dedupe;
mod failures;
mod fixture;
mod fragmented;
mod full;
mod in_turns;
mod many_files;
mod many_ranges;
mod many_runs;
mod model;
mod nocow;
mod rebuild;
mod refused;
mod space_shown;
mod split_insert;
mod threads;
mod verity;
mod waiting;

//! Scrubs of damaged volumes in memory, with every profile, and with concurrent writers.

mod cuts;
mod damage;
mod fixture;
mod kernel_counts;
mod parity;
mod sound;
mod with_writers;

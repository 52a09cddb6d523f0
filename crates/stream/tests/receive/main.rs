//! Receiving into a volume in memory.

mod damage;
mod fixture;
mod model;
mod rights;
mod together;

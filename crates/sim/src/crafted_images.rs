//! Images that are kept, made by hand, or damaged.

pub mod craft;
pub mod damage;
pub mod images;

//! Images that are kept, crafted, or damaged.

pub mod craft;
pub mod damage;
pub mod images;
pub mod nas;

//! The check of whole volumes.

mod kept_images;

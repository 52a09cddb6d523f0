//! The file system: what items mean together.

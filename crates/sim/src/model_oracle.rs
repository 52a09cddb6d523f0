//! A file system in memory as the oracle for writing: scripts are applied to it and to the file system under test.

pub mod model;
pub mod oracle;
pub mod script;

//! A file system in memory as the oracle for writing: scripts are done to it and to the one under test.

pub mod model;
pub mod oracle;
pub mod script;

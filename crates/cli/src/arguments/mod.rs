//! Parts of the command line that are the same for many commands.

pub(crate) mod mode_change;
pub(crate) mod option_order;
pub(crate) mod qgroup_id;
pub(crate) mod verbosity;

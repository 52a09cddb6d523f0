//! Parts of the command line that many commands share.

pub(crate) mod mode_change;
pub(crate) mod option_order;
pub(crate) mod qgroup_id;
pub(crate) mod verbosity;

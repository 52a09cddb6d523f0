//! Mounts as processes: what becomes of them, and what is on the image then.

mod aborted;
mod discards;
mod elsewhere;
mod ends;
mod looped;
#[path = "../cli/mapped.rs"]
mod mapped;
mod options;
#[path = "../cli/other_namespace.rs"]
mod other_namespace;
mod requests;
mod served;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;

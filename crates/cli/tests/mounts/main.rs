//! Mounts as processes: how they end, and the state of the image afterwards.

mod aborted;
mod containers;
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
#[path = "../../../fs/tests/log/scenarios.rs"]
mod scenarios;
mod served;
#[path = "../../../fs/tests/scripts/shown.rs"]
mod shown;
#[path = "../../../fs/tests/log/situations.rs"]
mod situations;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;
mod synced;

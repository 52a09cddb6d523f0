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
#[path = "../../../engine/tests/log/scenarios.rs"]
mod scenarios;
mod served;
#[path = "../../../engine/tests/scripts/shown.rs"]
mod shown;
#[path = "../../../engine/tests/log/situations.rs"]
mod situations;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;
mod synced;
